"""Reading an index in Milvus: nearest vectors, rows by id, scans."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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
from llama_index_graph_rag.stores.vector_copy import Kind, VectorCopy

if TYPE_CHECKING:
    from llama_index_graph_rag.stores.milvus_meta import About, MilvusMeta, Published

MAX_UNFLUSHED = 500
"""Rows on Milvus Lite that may wait unsealed before a search seals them (20 times slower)."""
MAX_PERMITTED = 16_384
"""Ids in the filter of one search; more are searched in parts."""
MAX_FILTERS = 64
"""Filters whose permitted passages are remembered."""


class MilvusReading(SnapshotReader, GraphIndexStore):
    """The half of `MilvusGraphStore` that reads."""

    collections: layout.Collections
    connection: MilvusConnection
    about: About | None
    _lock: RLock
    _meta: MilvusMeta
    _snapshot: GraphSnapshot
    _torn: bool
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
        """Return what is nearest to each vector.

        One Milvus search a kind asked for. With a copy of the vectors (FLAT on Milvus Lite) that is
        searched instead, and Milvus is asked for the texts of relations only.
        """
        self._hear()
        return SearchResult(
            entities=self._search("entities", entities, limits.entities),
            relations=self._search("relations", relations, limits.relations),
            passages=self._search("passages", passages, limits.passages, filters),
        )

    def _search(
        self,
        kind: Kind,
        vectors: Vectors | None,
        limit: int,
        filters: MetadataFilters | None = None,
    ) -> tuple[Hits, ...]:
        if vectors is None or not len(vectors):
            return ()
        if self.about is None or limit < 1:
            return (Hits(),) * len(vectors)
        self._check_search(vectors, limit)
        if filters is not None and not filters.filters:
            filters = None
        if (copy := self._copy) is None:
            return self._search_milvus(kind, vectors, limit, filters)
        permitted = self.permitted(filters) if filters else None
        found = self.connection.call(
            "search", lambda: copy.nearest(kind, vectors, limit, permitted)
        )
        texts = self._texts(copy, kind, [id for hits in found for id in hits.ids])
        return tuple(replace(hits, texts=tuple(texts[id] for id in hits.ids)) for hits in found)

    def _hear(self) -> None:
        """Go on with the graph of another store of this file, if it wrote."""
        # A reader does not wait for who is writing just now.
        if self._meta.news() is None or not self._lock.acquire(blocking=False):
            return
        try:
            if not self.exists:
                self._open()
            elif news := self._meta.news():
                self._take(news)
        finally:
            self._lock.release()

    @abstractmethod
    def _open(self) -> None: ...

    def _take(self, news: Published) -> None:
        self._snapshot = self._meta.take(news)
        self._torn = False

    @property
    def _copy(self) -> VectorCopy | None:
        graph = self._snapshot
        return None if graph.vectors is None else VectorCopy(graph, graph.vectors)

    def _texts(self, copy: VectorCopy, kind: Kind, ids: Sequence[str]) -> dict[str, str]:
        if kind == "entities":
            rows = copy.graph.entity_rows(ids)
            return dict(zip(ids, copy.graph.entity_names.take(rows)))
        if kind == "passages":
            return dict.fromkeys(ids, "")
        found = self.connection.get(self.collections.relations, ids, ["id", "text"])
        # One that is deleted meanwhile has no text any more.
        return {**dict.fromkeys(ids, ""), **{str(row["id"]): str(row["text"]) for row in found}}

    def _search_milvus(
        self, kind: Kind, vectors: Vectors, limit: int, filters: MetadataFilters | None
    ) -> tuple[Hits, ...]:
        slow = self.connection.is_lite and self._unflushed >= MAX_UNFLUSHED
        # A reader does not wait for who is writing just now.
        if slow and self._lock.acquire(blocking=False):
            try:
                self.flush()
            finally:
                self._lock.release()
        if filters is None:
            return self._ask(kind, vectors, limit)
        if where := filters_expression(filters):
            return self._ask(kind, vectors, limit, where)
        found = [
            self._ask(kind, vectors, limit, ids_expression(part))
            for part in parts(sorted(self.permitted(filters)), MAX_PERMITTED)
        ]
        return tuple(merged(hits, limit) for hits in zip(*found)) or (Hits(),) * len(vectors)

    def _ask(self, kind: Kind, vectors: Vectors, limit: int, where: str = "") -> tuple[Hits, ...]:
        metric = self._opened.metric
        if metric == "IP":  # of unit vectors it is the cosine
            lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
            vectors = (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
        return self.connection.search(
            getattr(self.collections, kind),
            vectors,
            limit=limit,
            metric=metric,
            text=kind != "passages",
            where=where,
        )

    def _check_search(self, vectors: Vectors, limit: int) -> None:
        about = self._opened
        if limit > MAX_WINDOW:
            raise GraphRAGValueError(
                f"{limit:,} hits are asked for, Milvus gives at most {MAX_WINDOW:,}; ask for fewer"
            )
        if vectors.shape[1:] != (about.dimension,):
            raise StoreError(
                f"the query's embeddings have the shape {vectors.shape}, {self!r} has "
                f"{about.dimension} dimensions; use the model that the index was built with: "
                f"{about.embedding_model!r}"
            )
        if not np.isfinite(vectors).all():
            raise GraphRAGValueError("the query's embedding holds a NaN or an infinity")

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
        """Return the embeddings of these entities and relations by id, at most a query a kind."""
        return self._vectors("entities", entities), self._vectors("relations", relations)

    def passage_vectors(self, ids: Sequence[str]) -> Mapping[str, Vectors]:
        """Return the embeddings of these passages by id."""
        return self._vectors("passages", ids)

    def _vectors(self, kind: Kind, ids: Sequence[str]) -> dict[str, Vectors]:
        if not self.exists:
            return {}
        copy = self._copy
        if copy is None:
            return self._stored_vectors(kind, ids)
        return self.connection.call("read", lambda: copy.by_id(kind, ids))

    def _stored_vectors(self, kind: Kind, ids: Sequence[str]) -> dict[str, Vectors]:
        rows = self.connection.get(getattr(self.collections, kind), ids, ["id", "embedding"])
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
