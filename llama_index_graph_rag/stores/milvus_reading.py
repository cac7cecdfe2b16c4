"""Reading an index in Milvus: nearest vectors, rows by id, scans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from threading import RLock
from typing import TYPE_CHECKING

import numpy as np
from llama_index.core.vector_stores import MetadataFilters

from llama_index_graph_rag.errors import GraphRAGValueError, StoreError
from llama_index_graph_rag.graph.snapshot import (
    EntityKey,
    GraphSnapshot,
    PassageKey,
    RelationKey,
)
from llama_index_graph_rag.stores import milvus_layout as layout
from llama_index_graph_rag.stores.base import (
    GraphIndexStore,
    Hits,
    Limits,
    SearchResult,
    StoredPassage,
    Vectors,
)
from llama_index_graph_rag.stores.milvus_connection import (
    MAX_WINDOW,
    MilvusConnection,
    merged,
    parts,
)
from llama_index_graph_rag.stores.milvus_filters import (
    filters_expression,
    ids_expression,
    passes,
)
from llama_index_graph_rag.stores.snapshot_reader import SnapshotReader

if TYPE_CHECKING:
    from llama_index_graph_rag.stores.milvus_meta import About

MAX_UNFLUSHED = 500
"""Rows on Milvus Lite that may wait unsealed before a search seals them (20 times slower)."""
MAX_FILTERS = 64
"""Filters whose permitted passages are remembered."""


class MilvusReading(SnapshotReader, GraphIndexStore):
    """The half of `MilvusGraphStore` that reads."""

    collections: layout.Collections
    connection: MilvusConnection
    about: About | None
    _lock: RLock
    _snapshot: GraphSnapshot
    _unflushed: int

    def __init__(self) -> None:
        self._permitted: tuple[GraphSnapshot, dict[str, frozenset[str]]]
        self._permitted = GraphSnapshot.empty(), {}

    @property
    def exists(self) -> bool:
        """Whether the index has been created."""
        return self.about is not None

    @property
    def dimension(self) -> int:
        """Length of the embeddings; 0 while the index does not exist."""
        return self.about.dimension if self.about else 0

    @property
    def _opened(self) -> About:
        if self.about is None:
            raise StoreError(f"{self!r} holds no index yet; build one, or check uri and prefix")
        return self.about

    def search(
        self,
        *,
        entities: Vectors | None = None,
        relations: Vectors | None = None,
        passages: Vectors | None = None,
        limits: Limits = Limits(),  # noqa: B008
        filters: MetadataFilters | None = None,
    ) -> SearchResult:
        """Return what is nearest to each vector: one Milvus search a kind asked for."""
        slow = self.connection.is_lite and self._unflushed >= MAX_UNFLUSHED
        # A reader does not wait for who is writing just now.
        if slow and self._lock.acquire(blocking=False):
            try:
                self.flush()
            finally:
                self._lock.release()
        return SearchResult(
            entities=self._search(self.collections.entities, entities, limits.entities),
            relations=self._search(self.collections.relations, relations, limits.relations),
            passages=self._search_passages(passages, limits.passages, filters),
        )

    def _search_passages(
        self, vectors: Vectors | None, limit: int, filters: MetadataFilters | None
    ) -> tuple[Hits, ...]:
        collection = self.collections.passages
        if vectors is None or filters is None or not filters.filters:
            return self._search(collection, vectors, limit)
        if where := filters_expression(filters):
            return self._search(collection, vectors, limit, where)
        found = [
            self._search(collection, vectors, limit, ids_expression(part))
            for part in parts(sorted(self.permitted(filters)), MAX_WINDOW)
        ]
        return tuple(merged(hits, limit) for hits in zip(*found)) or (Hits(),) * len(vectors)

    def _search(
        self, collection: str, vectors: Vectors | None, limit: int, where: str = ""
    ) -> tuple[Hits, ...]:
        if vectors is None or not len(vectors):
            return ()
        if self.about is None or limit < 1:
            return (Hits(),) * len(vectors)
        if vectors.shape[1:] != (self.about.dimension,):
            raise StoreError(
                f"the query's embeddings have the shape {vectors.shape}, {self!r} has "
                f"{self.about.dimension} dimensions; use the model that the index was built with: "
                f"{self.about.embedding_model!r}"
            )
        if not np.isfinite(vectors).all():
            raise GraphRAGValueError("the query's embedding holds a NaN or an infinity")
        if self.about.metric == "IP":  # of unit vectors it is the cosine
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors = vectors / np.where(lengths > 0, lengths, np.float32(1))
        return self.connection.search(
            collection,
            vectors,
            limit=limit,
            metric=self.about.metric,
            text=collection != self.collections.passages,
            where=where,
        )

    def permitted(self, filters: MetadataFilters) -> frozenset[str]:
        """Return the ids of the passages that pass `filters`; kept until the graph changes.

        What Milvus would decide otherwise than LlamaIndex (see `filters_expression`) is decided
        here, from one scan of the passages' metadata.
        """
        key = repr(filters)  # JSON would write NaN as None
        snapshot = self._snapshot
        of, known = self._permitted
        if of is not snapshot or len(known) > MAX_FILTERS:
            known = {}
            self._permitted = snapshot, known
        if key not in known:
            known[key] = frozenset(self._permitted_ids(filters)) if self.exists else frozenset()
        return known[key]

    def _permitted_ids(self, filters: MetadataFilters) -> Iterator[str]:
        where = filters_expression(filters)
        fields = ["id"] if where else ["id", "doc_id", "_node_content"]
        for page in self.connection.scan(self.collections.passages, fields, where or ""):
            for row in page:
                if where or passes(filters, layout.read_metadata(row)):
                    yield str(row["id"])

    def get_passages(self, ids: Sequence[str]) -> list[StoredPassage]:
        """Return the passages with these ids, in the order asked, without the missing ones."""
        if not self.exists:
            return []
        fields = ["id", "text", "_node_content", "_node_type", "relation_ids", "mentions"]
        found = self.connection.get(self.collections.passages, ids, fields)
        rows = {str(row["id"]): row for row in found}
        return [layout.read_passage(rows[id]) for id in dict.fromkeys(ids) if id in rows]

    def get_vectors(
        self, *, entities: Sequence[str] = (), relations: Sequence[str] = ()
    ) -> tuple[Mapping[str, Vectors], Mapping[str, Vectors]]:
        """Return the embeddings of these entities and relations by id, one query a kind."""
        return (
            self._vectors(self.collections.entities, entities),
            self._vectors(self.collections.relations, relations),
        )

    def passage_vectors(self, ids: Sequence[str]) -> Mapping[str, Vectors]:
        """Return the embeddings of these passages by id."""
        return self._vectors(self.collections.passages, ids)

    def _vectors(self, collection: str, ids: Sequence[str]) -> dict[str, Vectors]:
        if not self.exists:
            return {}
        rows = self.connection.get(collection, ids, ["id", "embedding"])
        return {str(row["id"]): np.asarray(row["embedding"], dtype=np.float32) for row in rows}

    def scan_passages(self) -> Iterator[list[PassageKey]]:
        """Yield all passages in pages."""
        fields = ["id", "doc_id", "relation_ids", "content_hash", "document_hash"]
        for page in self.connection.scan(self.collections.passages, fields):
            yield [layout.passage_key(row) for row in page]

    def scan_relations(self) -> Iterator[list[RelationKey]]:
        """Yield all relations in pages."""
        fields = ["id", "subject_id", "object_id"]
        for page in self.connection.scan(self.collections.relations, fields):
            yield [layout.relation_key(row) for row in page]

    def scan_entities(self) -> Iterator[list[EntityKey]]:
        """Yield all entities in pages."""
        for page in self.connection.scan(self.collections.entities, ["id", "text"]):
            yield [layout.entity_key(row) for row in page]
