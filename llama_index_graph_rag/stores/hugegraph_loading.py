"""Writing triplets into HugeGraph."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from llama_index_graph_rag.errors import GraphRAGValueError, StoreError
from llama_index_graph_rag.stores.gremlin import Ask, Gremlin, Request, batches
from llama_index_graph_rag.stores.hugegraph_schema import HugeGraphSchema, vertex_id
from llama_index_graph_rag.triplets import unique_triplets

logger = logging.getLogger("llama_index_graph_rag")

T = TypeVar("T")

ROWS_A_REQUEST = 500
"""HugeGraph takes at most this many vertices or edges in one request."""


def load_triplets(
    schema: HugeGraphSchema,
    triplets: Iterable[Sequence[str]],
    vertex_label: str,
    edge_label: str,
) -> Ask[int]:
    """Ask for all that writing `triplets` takes; the result counts the distinct ones."""
    valid, invalid = unique_triplets(triplets)
    if invalid:
        logger.warning("%d triplets left out, first: %s", len(invalid), invalid[0].reason)
    if not valid:
        return 0
    for key in ("name", "predicate"):
        if key not in schema.property_keys:
            body = {"name": key, "data_type": "TEXT", "cardinality": "SINGLE"}
            yield Request("POST", "{graph}/schema/propertykeys", body)
    yield from _ensure_label(schema.vertex_labels, "vertexlabels", _vertex_label(vertex_label))
    yield from _ensure_label(
        schema.edge_labels, "edgelabels", _edge_label(edge_label, vertex_label)
    )
    names: dict[str, str] = {}
    for triplet in valid:
        names.setdefault(vertex_id(triplet.subject), triplet.subject)
        names.setdefault(vertex_id(triplet.object), triplet.object)
    # The spelling first written stays.
    for ids in batches(names):
        known = yield Gremlin("g.V().hasId(within(ids)).id()", {"ids": ids})
        rows = [
            {"label": vertex_label, "id": id, "properties": {"name": names[id]}}
            for id in ids
            if id not in set(map(str, known))
        ]
        for chunk in _chunks(rows):
            yield Request("POST", "{graph}/graph/vertices/batch", chunk)
    edges = [
        {
            "label": edge_label,
            "outV": vertex_id(triplet.subject),
            "inV": vertex_id(triplet.object),
            "outVLabel": vertex_label,
            "inVLabel": vertex_label,
            "properties": {"predicate": triplet.predicate},
        }
        for triplet in valid
    ]
    for chunk in _chunks(edges):
        yield Request("POST", "{graph}/graph/edges/batch?check_vertex=true", chunk)
    return len(valid)


def _vertex_label(name: str) -> dict[str, object]:
    return {
        "name": name,
        "id_strategy": "CUSTOMIZE_STRING",
        "properties": ["name"],
    }


def _edge_label(name: str, vertex_label: str) -> dict[str, object]:
    return {
        "name": name,
        "source_label": vertex_label,
        "target_label": vertex_label,
        "frequency": "MULTIPLE",
        "properties": ["predicate"],
        "sort_keys": ["predicate"],
    }


def _ensure_label(
    known: Mapping[str, Mapping[str, object]], kind: str, wanted: Mapping[str, object]
) -> Ask[None]:
    name = str(wanted["name"])
    if not name:
        raise GraphRAGValueError("a label's name may not be empty")
    if name not in known:
        yield Request("POST", f"{{graph}}/schema/{kind}", wanted)
        return
    for key, value in wanted.items():
        if key == "properties":
            fits = set(wanted["properties"]) <= set(known[name]["properties"])  # type: ignore[call-overload]
        else:
            fits = known[name].get(key) == value
        if not fits:
            raise StoreError(
                f"the label {name!r} exists with {key} {known[name].get(key)!r}, not {value!r}; "
                f"choose another vertex_label= or edge_label="
            )


def _chunks(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(rows), ROWS_A_REQUEST):
        yield rows[start : start + ROWS_A_REQUEST]
