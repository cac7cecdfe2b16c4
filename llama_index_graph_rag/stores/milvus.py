"""The default store: an index of ours in Milvus Lite, a Milvus server or a cluster."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    Batch,
    GraphIndexStore,
    Hits,
    Limits,
    PassageRow,
    SearchResult,
    StaleBatchError,
    StoredPassage,
    Vectors,
)
from llama_index_graph_rag.stores.milvus_connection import MAX_WINDOW, MilvusConnection
from llama_index_graph_rag.stores.milvus_filters import (
    filters_expression,
    ids_expression,
    passes,
)
from llama_index_graph_rag.stores.milvus_meta import About, MilvusMeta, cache_folder
from llama_index_graph_rag.stores.snapshot_reader import SnapshotReader

if TYPE_CHECKING:
    from llama_index.vector_stores.milvus import MilvusVectorStore

MAX_UNFLUSHED = 500
"""Rows on Milvus Lite that may wait unsealed before a search seals them (20 times slower)."""
MAX_FILTERS = 64
"""Filters whose permitted passages are remembered."""


class MilvusGraphStore(SnapshotReader, GraphIndexStore):
    """An index of ours in Milvus; as a GraphReader it walks matrices in memory.

    Writes of one process exclude each other; readers never wait, they see the graph of before or
    of after a write. Several processes may write to a server: call `refresh` to see the others.

    Parameters
    ----------
    uri
        A Milvus Lite path that ends in ``.db`` (its folder is created), or the URI of a Milvus
        server, a cluster or Zilliz Cloud. Default ``"./graph_rag.db"``.
    token
        ``user:password`` or an API key, for a server.
    db_name
        Database on the server; empty for the default one.
    collection_prefix
        The index's collections are called ``<prefix>_entities`` and so on, so that one Milvus
        holds many indexes. Letters, digits and underscores.
    metric
        ``"COSINE"`` (default) or ``"IP"``; fixed when the index is made.
    index_config
        Milvus index for new collections, such as ``{"index_type": "HNSW", "params": {"M": 16,
        "efConstruction": 200}}``. Default: FLAT (exact) on Milvus Lite, AUTOINDEX on a server.
    cache_dir
        Where the graph's matrices are kept between runs. Default: beside a Milvus Lite file, else
        the user's cache folder.
    timeout
        Seconds to wait for the connection; None waits as pymilvus does.

    Raises
    ------
    StoreError
        If Milvus cannot be reached, another process has the Milvus Lite file open, or the
        collections hold something else.

    Examples
    --------
    >>> import tempfile
    >>> store = MilvusGraphStore(tempfile.mkdtemp() + "/demo.db")
    >>> store.exists, store.stats()["passages"]
    (False, 0)
    >>> store.close()
    """

    def __init__(
        self,
        uri: str | Path = "./graph_rag.db",
        *,
        token: str = "",
        db_name: str = "",
        collection_prefix: str = "graph_rag",
        metric: str = "COSINE",
        index_config: Mapping[str, object] | None = None,
        cache_dir: str | Path | None = None,
        timeout: float | None = None,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,199}", collection_prefix):
            raise GraphRAGValueError(
                f"collection_prefix={collection_prefix!r} is not 1 to 200 letters, digits or "
                "underscores that start with a letter"
            )
        if metric not in ("COSINE", "IP"):
            raise GraphRAGValueError(f"metric={metric!r} is neither 'COSINE' nor 'IP'")
        self.collections = layout.Collections(collection_prefix)
        self.connection = MilvusConnection(uri, token=token, db_name=db_name, timeout=timeout)
        self.about: About | None = None
        self._metric = metric
        lite = self.connection.is_lite
        self._index_config = dict(index_config or {"index_type": "FLAT" if lite else "AUTOINDEX"})
        self._lock = threading.RLock()
        self._snapshot = GraphSnapshot.empty()
        self._unflushed = 0
        self._permitted: dict[str, tuple[GraphSnapshot, frozenset[str]]] = {}
        self._meta = MilvusMeta(
            self.connection,
            self.collections.meta,
            cache_folder(self.connection, collection_prefix, cache_dir),
        )
        self._open()

    def __repr__(self) -> str:
        return (
            f"MilvusGraphStore({self.connection.uri!r}, "
            f"collection_prefix={self.collections.prefix!r})"
        )

    # --- opening and closing --------------------------------------------------------------------

    def _open(self) -> None:
        about = self._meta.read_about()
        if about is None:
            return
        for name in self.collections.with_vectors:
            self.connection.load(name)
        self._meta.sequences = self._meta.read_sequences()
        self._snapshot = self._meta.kept_snapshot() or self._scanned()
        self.about = about

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

    def create(
        self, dimension: int, *, embedding_model: str = "", probe: Sequence[float] = ()
    ) -> None:
        """Create the collections; where they are there, check that they fit.

        Parameters
        ----------
        dimension
            Length of the embeddings.
        embedding_model
            Name of the model they come from, for messages.
        probe
            The model's embedding of a fixed text, by which the model is recognised.

        Raises
        ------
        StoreError
            If the index was built with another model, or collections of this prefix exist with
            another layout.
        """
        with self._lock:
            if self.about is None:
                self._open()  # another process may have created it meanwhile
            if self.about is not None:
                self.about.check(dimension, embedding_model, probe)
                return
            for name, fields in self.collections.fields.items():
                self.connection.create(
                    name,
                    fields,
                    dimension=2 if name == self.collections.meta else dimension,
                    metric=self._metric,
                    index=self._index_config,
                    dynamic=name == self.collections.passages,
                )
            short = tuple(round(float(value), 5) for value in probe[:512])
            about = About(dimension, self._metric, embedding_model, short)
            self._meta.write_about(about)
            self.about = about

    def close(self) -> None:
        """Flush, keep the matrices for the next start, and let go of a Milvus Lite file."""
        with self._lock:
            self.flush()
            self.connection.close()

    def passage_vector_store(self) -> MilvusVectorStore:
        """Return LlamaIndex's own Milvus vector store over our passages: plain vector RAG.

        Write through the index, not through it: it knows nothing of entities and relations.
        """
        from llama_index.vector_stores.milvus import MilvusVectorStore

        about, connection = self._opened, self.connection
        options: dict[str, Any] = {"db_name": connection.db_name} if connection.db_name else {}
        return MilvusVectorStore(
            uri=connection.uri,
            token=connection.token,
            collection_name=self.collections.passages,
            dim=about.dimension,
            similarity_metric=about.metric,
            upsert_mode=True,
            **options,
        )

    # --- writing --------------------------------------------------------------------------------

    def upsert(self, batch: Batch) -> None:
        """Write entities, then relations, then passages; see GraphIndexStore.

        Everything is checked before anything is written. If Milvus fails half way, a StoreError
        asks to write the batch again, which is safe: every id is a content hash.
        """
        dimension = self._opened.dimension
        entities = {row.id: layout.entity_row(row, dimension) for row in batch.entities}
        relations = {row.id: layout.relation_row(row, dimension) for row in batch.relations}
        passages = [layout.passage_row(row, dimension) for row in batch.passages]
        with self._lock:
            self._check_references(batch)
            # The spelling first written stays.
            for rows, known in (
                (entities, self._snapshot.entity_rows(list(entities))),
                (relations, self._snapshot.relation_rows(list(relations))),
            ):
                for id in [id for id, row in zip(rows, known) if row >= 0]:
                    del rows[id]
            rows_of = {
                self.collections.entities: list(entities.values()),
                self.collections.relations: list(relations.values()),
                self.collections.passages: passages,
            }
            if not any(rows_of.values()):
                return
            self._meta.bump()
            for collection, part in rows_of.items():
                self.connection.write(collection, part)
                self._unflushed += len(part)
            self._meta.bump()
            self._snapshot = self._snapshot.with_changes(
                entities=[EntityKey(row.id, row.text) for row in batch.entities],
                relations=[
                    RelationKey(row.id, row.subject_id, row.object_id) for row in batch.relations
                ],
                passages=[
                    PassageKey(
                        row.node.node_id,
                        row.node.ref_doc_id or "",
                        row.relation_ids,
                        row.content_hash,
                        row.document_hash,
                    )
                    for row in batch.passages
                ],
            )

    def check(self, passage: PassageRow) -> None:
        """Raise GraphRAGValueError if the passage is over Milvus's limits."""
        layout.passage_fields(passage)

    def _check_references(self, batch: Batch) -> None:
        entities = {id for row in batch.relations for id in (row.subject_id, row.object_id)}
        relations = {id for row in batch.passages for id in row.relation_ids}
        entities -= {row.id for row in batch.entities}
        relations -= {row.id for row in batch.relations}
        snapshot = self._snapshot
        if len(rows := snapshot.entity_rows(list(entities))) and rows.min() < 0:
            raise StaleBatchError(f"a relation of the batch joins entities that {self!r} lacks")
        if len(rows := snapshot.relation_rows(list(relations))) and rows.min() < 0:
            raise StaleBatchError(f"a passage of the batch states relations that {self!r} lacks")

    def missing(
        self, *, entities: Sequence[str] = (), relations: Sequence[str] = ()
    ) -> tuple[set[str], set[str]]:
        """Return those of the ids that are not stored: what has to be embedded and written.

        On a server another process may have vacuumed since, so it is asked (one query a thousand
        ids); Milvus Lite has one process, whose snapshot knows.
        """
        if not self.exists:
            return set(entities), set(relations)
        if self.connection.is_lite:
            snapshot = self._snapshot
            return (
                {id for id, row in zip(entities, snapshot.entity_rows(entities)) if row < 0},
                {id for id, row in zip(relations, snapshot.relation_rows(relations)) if row < 0},
            )
        stored = [
            {str(row["id"]) for row in self.connection.get(collection, ids, ["id"])}
            for collection, ids in (
                (self.collections.entities, entities),
                (self.collections.relations, relations),
            )
        ]
        return set(entities) - stored[0], set(relations) - stored[1]

    def delete_passages(self, ids: Sequence[str]) -> None:
        """Delete passages by id; on Milvus Lite what they alone held is vacuumed at once."""
        with self._lock:
            known = self._snapshot.passage_rows(ids)
            present = [id for id, row in zip(ids, known) if row >= 0]
            if not present:
                return
            self._meta.bump()
            self.connection.delete(self.collections.passages, present)
            self._unflushed += len(present)
            self._snapshot = self._snapshot.with_changes(removed_passages=present)
            if self.connection.is_lite:
                self._remove_orphans()
            self._meta.bump()

    def delete_documents(self, ref_doc_ids: Sequence[str]) -> None:
        """Delete all passages of these source documents."""
        with self._lock:
            snapshot = self._snapshot
            self.delete_passages(
                [id for ref in ref_doc_ids for id in snapshot.passages_of_document(ref)]
            )

    def vacuum(self) -> dict[str, int]:
        """Remove relations that no passage holds and entities without a relation.

        On a server, call it while no other process writes: a relation that another writer just
        began to use would go. `GraphRAGIndex.repair` brings such relations back.
        """
        with self._lock:
            self.refresh()
            if not self.exists:
                return {"entities": 0, "relations": 0}
            self._meta.bump()
            removed = self._remove_orphans()
            self._meta.bump()
            return removed

    def _remove_orphans(self) -> dict[str, int]:
        relations = self._snapshot.orphan_relations()
        entities = self._snapshot.orphan_entities()
        if relations or entities:
            self.connection.delete(self.collections.relations, relations)
            self.connection.delete(self.collections.entities, entities)
            self._unflushed += len(relations) + len(entities)
            self._snapshot = self._snapshot.with_changes(
                removed_relations=relations, removed_entities=entities
            )
        return {"entities": len(entities), "relations": len(relations)}

    def flush(self) -> None:
        """Seal what was written, which makes searching it fast, and keep the matrices."""
        with self._lock:
            if not self.exists:
                return
            if self._unflushed:
                for name in self.collections.with_vectors:
                    self.connection.flush(name)
                self._unflushed = 0
            self._meta.keep(self._snapshot)

    # --- reading --------------------------------------------------------------------------------

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
        if self._unflushed >= MAX_UNFLUSHED and self.connection.is_lite:
            self.flush()
        where = self._where(filters) if filters and passages is not None else ""
        return SearchResult(
            entities=self._search(self.collections.entities, entities, limits.entities),
            relations=self._search(self.collections.relations, relations, limits.relations),
            passages=self._search(self.collections.passages, passages, limits.passages, where),
        )

    def _search(
        self, collection: str, vectors: Vectors | None, limit: int, where: str = ""
    ) -> tuple[Hits, ...]:
        if vectors is None or not len(vectors):
            return ()
        if self.about is None or limit < 1:
            return (Hits(),) * len(vectors)
        if vectors.shape[1] != self.about.dimension:
            raise StoreError(
                f"the query's embedding has {vectors.shape[1]} dimensions, {self!r} has "
                f"{self.about.dimension}; use the model that the index was built with: "
                f"{self.about.embedding_model!r}"
            )
        return self.connection.search(
            collection,
            vectors,
            limit=limit,
            metric=self.about.metric,
            text=collection != self.collections.passages,
            where=where,
        )

    def _where(self, filters: MetadataFilters) -> str:
        pushed = filters_expression(filters)
        return pushed or ids_expression(sorted(self.permitted(filters))[:MAX_WINDOW])

    def permitted(self, filters: MetadataFilters) -> frozenset[str]:
        """Return the ids of the passages that pass `filters`; kept until the graph changes.

        What Milvus would decide otherwise than LlamaIndex (see `filters_expression`) is decided
        here, from one scan of the passages' metadata.
        """
        key = filters.model_dump_json()
        snapshot = self._snapshot
        cached = self._permitted.get(key)
        if cached is not None and cached[0] is snapshot:
            return cached[1]
        ids = frozenset(self._permitted_ids(filters)) if self.exists else frozenset[str]()
        if len(self._permitted) >= MAX_FILTERS:
            self._permitted.clear()
        self._permitted[key] = (snapshot, ids)
        return ids

    def _permitted_ids(self, filters: MetadataFilters) -> Iterator[str]:
        where = filters_expression(filters)
        fields = ["id"] if where else ["id", "text", "_node_content", "_node_type"]
        for page in self.connection.scan(self.collections.passages, fields, where or ""):
            for row in page:
                if where or passes(filters, layout.read_passage(row).node.metadata):
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
            yield [RelationKey(*(str(row[field]) for field in fields)) for row in page]

    def scan_entities(self) -> Iterator[list[EntityKey]]:
        """Yield all entities in pages."""
        for page in self.connection.scan(self.collections.entities, ["id", "text"]):
            yield [EntityKey(str(row["id"]), str(row["text"])) for row in page]

    def snapshot(self) -> GraphSnapshot:
        """Return the graph as it is now, immutable."""
        return self._snapshot

    def refresh(self) -> bool:
        """Take in what other writers wrote (one small query where nothing changed)."""
        with self._lock:
            if not self.exists:
                self._open()
                return self.exists
            sequences = self._meta.read_sequences()
            if sequences == self._meta.sequences:
                return False
            self._meta.sequences = sequences
            self._snapshot = self._scanned()
            return True

    def _scanned(self) -> GraphSnapshot:
        snapshot = GraphSnapshot.empty().with_changes(
            entities=(key for page in self.scan_entities() for key in page),
            relations=(key for page in self.scan_relations() for key in page),
            passages=(key for page in self.scan_passages() for key in page),
        )
        self._meta.keep(snapshot)
        return snapshot

    def stats(self) -> dict[str, int]:
        """Return passages, entities, relations, orphan_entities and orphan_relations."""
        return self._snapshot.stats()
