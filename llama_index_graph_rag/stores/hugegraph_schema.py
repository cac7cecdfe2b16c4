"""What HugeGraph's schema says: labels, properties, ids made from primary keys, indexes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llama_index_graph_rag.errors import GraphRAGValueError, StoreError
from llama_index_graph_rag.identity import canonical_name, clean_text, entity_id
from llama_index_graph_rag.stores.gremlin import Ask, Request

MAX_ID_BYTES = 128
"""HugeGraph takes no longer vertex id, in a query either."""

_SCHEMA = "{graph}/schema"
_BITS = {"BYTE": 8, "INT": 32, "LONG": 64}
_FRACTION = {"FLOAT", "DOUBLE"}
_MATCHING = {"SECONDARY", "UNIQUE", "RANGE_INT", "RANGE_LONG", "RANGE_FLOAT", "RANGE_DOUBLE"}


@dataclass(frozen=True, slots=True)
class HugeGraphSchema:
    """The schema of one graph as the server's JSON gives it."""

    property_keys: Mapping[str, Mapping[str, Any]]
    vertex_labels: Mapping[str, Mapping[str, Any]]
    edge_labels: Mapping[str, Mapping[str, Any]]
    index_labels: Sequence[Mapping[str, Any]]

    def check_property(self, name: str) -> None:
        """Raise GraphRAGValueError unless a vertex label has this property."""
        known = {p for label in self.vertex_labels.values() for p in label["properties"]}
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise GraphRAGValueError(f"no vertex label has a property {name!r}; known: {listed}")

    def candidate_ids(self, name: str, by: str | None) -> list[str]:
        """Return the vertex ids that `name` may stand for.

        Without `by`: the name itself, its `vertex_id`, and the id that each label with one
        primary key makes of it. With `by`: the last, for labels whose primary key it is.
        """
        made = [
            f"{label['id']}:{_escaped(name)}"
            for label in self.vertex_labels.values()
            if self._text_key(label) is not None and by in (None, self._text_key(label))
        ]
        own = [name, vertex_id(name)] if by is None else []
        return list(filter(can_be_id, dict.fromkeys([*own, *made]))) if name else []

    def indexed(self, name: str) -> list[str]:
        """Return the vertex labels on which the property has an index to match by."""
        bases = {
            index["base_value"]
            for index in self.index_labels
            if index["base_type"] == "VERTEX_LABEL"
            and index["index_type"] in _MATCHING
            and index["fields"][:1] == [name]
        }
        return sorted(bases & self.vertex_labels.keys())

    def unindexed(self, name: str) -> list[str]:
        """Return the vertex labels that have the property, but neither as key nor in an index."""
        ready = set(self.indexed(name))
        return sorted(
            label["name"]
            for label in self.vertex_labels.values()
            if name in label["properties"]
            and label["name"] not in ready
            and self._text_key(label) != name
        )

    def value(self, property_name: str, text: str) -> str | int | float | None:
        """Return `text` as a value of the property's type; None if it cannot be one."""
        kind = self.property_keys[property_name]["data_type"]
        if kind not in _FRACTION and kind not in _BITS:
            return clean_text(text)
        try:
            number = int(text) if kind in _BITS else float(text)
        except ValueError:
            return None
        # One value out of range would have the server refuse all others with it.
        if kind in _BITS:
            most = 2 ** (_BITS[kind] - 1)
            return number if -most <= number < most else None
        return number if math.isfinite(number) else None

    def text(self) -> str:
        """Return the schema for an LLM: a line a vertex label and a line an edge label."""
        lines = []
        for label in sorted(self.vertex_labels.values(), key=lambda label: str(label["name"])):
            lines.append(f"({label['name']}{self._typed(label['properties'])})")
        for label in sorted(self.edge_labels.values(), key=lambda label: str(label["name"])):
            lines.append(
                f"({label['source_label']})-[{label['name']}{self._typed(label['properties'])}]"
                f"->({label['target_label']})"
            )
        return "\n".join(lines) or "no labels"

    def _typed(self, names: Sequence[str]) -> str:
        parts = (
            f"{name}: {self.property_keys[name]['data_type'].lower()}" for name in sorted(names)
        )
        return f" {{{', '.join(parts)}}}" if names else ""

    def _text_key(self, label: Mapping[str, Any]) -> str | None:
        keys = label["primary_keys"]
        if label["id_strategy"] != "PRIMARY_KEY" or len(keys) != 1:
            return None
        return str(keys[0]) if self.property_keys[keys[0]]["data_type"] == "TEXT" else None


def vertex_id(name: str) -> str:
    """Return the vertex id of an entity: its canonical name, or a hash where that is too long.

    Examples
    --------
    >>> vertex_id("Leonhard  Euler")
    'leonhard euler'
    """
    id = canonical_name(name)
    return id if len(id.encode()) <= MAX_ID_BYTES else entity_id(name)


def can_be_id(id: str) -> bool:
    """Tell whether a vertex can have this id: HugeGraph refuses a query by another.

    Examples
    --------
    >>> can_be_id("1:marko"), can_be_id(""), can_be_id("x" * 129)
    (True, False, False)
    """
    return 0 < len(id.encode(errors="replace")) <= MAX_ID_BYTES


def ask_schema() -> Ask[HugeGraphSchema]:
    """Ask for the schema."""
    body = yield Request("GET", _SCHEMA)
    try:
        return HugeGraphSchema(
            {key["name"]: key for key in body["propertykeys"]},
            {label["name"]: label for label in body["vertexlabels"]},
            {label["name"]: label for label in body["edgelabels"]},
            body["indexlabels"],
        )
    except (TypeError, KeyError) as error:
        text = json.dumps(body)[:500]
        raise StoreError(f"HugeGraph's schema has an unknown form: {text}") from error


def ask_index(labels: Sequence[str], property_name: str, timeout: float) -> Ask[None]:
    """Create a secondary index on the property for each label, and wait until all are ready.

    HugeGraph builds an index in the background, over the vertices that there are.
    """
    names = {f"{label}By{property_name.capitalize()}": label for label in labels}
    for name, label in names.items():
        yield Request(
            "POST",
            f"{_SCHEMA}/indexlabels",
            {
                "name": name,
                "base_type": "VERTEX_LABEL",
                "base_value": label,
                "index_type": "SECONDARY",
                "fields": [property_name],
            },
        )
    waited, pause = 0.0, 0.05
    while names:
        schema = yield from ask_schema()
        ready = {i["name"] for i in schema.index_labels if i.get("status") == "CREATED"}
        waiting = sorted(names.keys() - ready)
        if not waiting:
            return
        if waited >= timeout:
            raise StoreError(
                f"HugeGraph did not finish the index {', '.join(waiting)} in {timeout} s; "
                f"it goes on building: try again later, or raise timeout="
            )
        yield pause
        waited, pause = waited + pause, min(pause * 2, 1.0)


def _escaped(key: str) -> str:
    # HugeGraph joins label and keys with ':' and '!', and marks those in a key with a back-tick.
    return key.replace("!", "`!").replace(":", "`:")
