"""What a graph is built from: a row of a scan over entities, relations or passages."""

from __future__ import annotations

from typing import NamedTuple

from llama_index_graph_rag.graph.vectors import Vectors


class RelationKey(NamedTuple):
    """A relation by the ids of its ends."""

    id: str
    subject_id: str
    object_id: str
    vector: Vectors | None = None


class EntityKey(NamedTuple):
    """An entity by its first spelling."""

    id: str
    text: str
    vector: Vectors | None = None


class PassageKey(NamedTuple):
    """A passage by what it states, and the hashes by which changes are recognised."""

    id: str
    ref_doc_id: str
    relation_ids: tuple[str, ...]
    content_hash: str
    document_hash: str
    vector: Vectors | None = None
