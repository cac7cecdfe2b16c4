"""What a PropertyGraphIndex holds, as passages with triplets."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from llama_index.core.graph_stores.types import (
    TRIPLET_SOURCE_KEY,
    ChunkNode,
    LabelledNode,
    PropertyGraphStore,
)
from llama_index.core.indices.property_graph import PropertyGraphIndex
from llama_index.core.schema import BaseNode

from llama_index_graph_rag.errors import GraphRAGTypeError

logger = logging.getLogger("llama_index_graph_rag")

_BATCH = 500

Statement = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Imported:
    """Passages, the triplets of each, and the triplets that no passage states."""

    nodes: list[BaseNode]
    triplets: list[list[Statement]]
    unplaced: list[Statement]


def read_property_graph(source: PropertyGraphIndex | PropertyGraphStore) -> Imported:
    """Read passages and triplets out of a PropertyGraphIndex or its store.

    A property graph names one passage for each relation, the last that stated it; where it names
    none, a passage of the subject or the object stands in.

    Raises
    ------
    GraphRAGTypeError
        If `source` is neither of the two.

    Examples
    --------
    >>> from llama_index.core.graph_stores import SimplePropertyGraphStore
    >>> read_property_graph(SimplePropertyGraphStore()).nodes
    []
    """
    store = getattr(source, "property_graph_store", source)
    if not isinstance(store, PropertyGraphStore):
        raise GraphRAGTypeError(
            f"a {type(source).__name__} is neither a PropertyGraphIndex nor a PropertyGraphStore"
        )
    nodes = store.get()
    chunks = [node.id for node in nodes if isinstance(node, ChunkNode)]
    entities = [node.id for node in nodes if not isinstance(node, ChunkNode)]
    known = set(chunks)
    stated: dict[str, dict[Statement, None]] = {id: {} for id in chunks}
    unplaced: dict[Statement, None] = {}
    for start in range(0, len(entities), _BATCH):
        for subject, relation, object in store.get_triplets(ids=entities[start : start + _BATCH]):
            if isinstance(subject, ChunkNode) or isinstance(object, ChunkNode):
                continue  # which passage mentions an entity, not a fact
            triplet = (_name(subject), relation.label, _name(object))
            properties = (relation.properties, subject.properties, object.properties)
            passages = [item.get(TRIPLET_SOURCE_KEY) for item in properties]
            passage = next((id for id in passages if id in known), None)
            (unplaced if passage is None else stated[passage])[triplet] = None
    texts = _llama_nodes(store, chunks)
    return Imported(texts, [list(stated[node.node_id]) for node in texts], list(unplaced))


def _llama_nodes(store: PropertyGraphStore, ids: Sequence[str]) -> list[BaseNode]:
    nodes: list[BaseNode] = []
    for start in range(0, len(ids), _BATCH):
        nodes += store.get_llama_nodes(list(ids[start : start + _BATCH]))
    return nodes


def _name(node: LabelledNode) -> str:
    return str(getattr(node, "name", node.id))
