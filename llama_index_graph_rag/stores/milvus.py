"""The default store: an index of ours in Milvus Lite, a Milvus server or a cluster."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.graph.adjacency import Rows
from llama_index_graph_rag.graph.snapshot import (
    EntityKey,
    GraphSnapshot,
    RelationKey,
)
from llama_index_graph_rag.stores import milvus_layout as layout
from llama_index_graph_rag.stores.base import (
    Batch,
    PassageRow,
    StaleBatchError,
)
from llama_index_graph_rag.stores.milvus_connection import (
    MAX_IDS,
    MilvusConnection,
    parts,
)
from llama_index_graph_rag.stores.milvus_filters import (
    ids_expression,
)
from llama_index_graph_rag.stores.milvus_meta import About, MilvusMeta, cache_folder
from llama_index_graph_rag.stores.milvus_reading import MAX_UNFLUSHED, MilvusReading

if TYPE_CHECKING:
    from llama_index.vector_stores.milvus import MilvusVectorStore

MAX_DIMENSION = 32_768
BULK_ROWS = 10_000
"""Rows on a server from which a bulk is sealed; a server limits how often one may ask for it."""
KEEP_FRACTION = 0.05
"""Part of all rows that has to be written before the matrices are kept anew."""
REST = 4
"""How many times longer than it read all a reader goes on with it before it reads all again."""


class MilvusGraphStore(MilvusReading):
    """An index of ours in Milvus; as a GraphReader it walks matrices in memory.

    Writes through one store exclude each other, on Milvus Lite those of all stores of the file;
    readers never wait, they see the graph of before or of after a write. Several processes may
    write to a server: call `refresh` to see the others. It reads all ids and links again where
    others wrote, as does each call that writes: where several processes write, write much at once.

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
        ``"COSINE"`` or ``"IP"``, which is faster and of vectors that are made unit vectors when
        they are written, so that similarities are cosines with both. Fixed when the index is made.
        Default: that of the index, COSINE for a new one.
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
    GraphRAGValueError
        If `uri` or an option is none of those above, or the index was made with another metric or
        index type.
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
        metric: str | None = None,
        index_config: Mapping[str, object] | None = None,
        cache_dir: str | Path | None = None,
        timeout: float | None = None,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,199}", collection_prefix):
            raise GraphRAGValueError(
                f"collection_prefix={collection_prefix!r} is not 1 to 200 letters, digits or "
                "underscores that start with a letter"
            )
        if metric not in (None, "COSINE", "IP"):
            raise GraphRAGValueError(f"metric={metric!r} is neither 'COSINE' nor 'IP'")
        super().__init__()
        self.collections = layout.Collections(collection_prefix)
        self.connection = MilvusConnection(uri, token=token, db_name=db_name, timeout=timeout)
        self.about: About | None = None
        self._metric = metric
        self._index_config = dict(index_config or {})
        self._lock = self.connection.write_lock
        self._snapshot = GraphSnapshot.empty()
        self._unflushed = self._unkept = 0
        self._rests_until = 0.0
        self._torn = False
        self._meta = MilvusMeta(
            self.connection,
            self.collections.meta,
            cache_folder(self.connection, collection_prefix, cache_dir),
        )
        try:
            self._open()
        except BaseException:  # interrupted too: the file must not stay locked
            self.connection.close()
            raise

    def __repr__(self) -> str:
        return (
            f"MilvusGraphStore({self.connection.place!r}, "
            f"collection_prefix={self.collections.prefix!r})"
        )

    # --- opening and closing --------------------------------------------------------------------

    def _open(self) -> None:
        about = self._meta.read_about()
        if about is None:
            return
        self._check_options(about)
        for name in self.collections.with_vectors:
            self.connection.load(name)
        self._meta.sequences = self._meta.read_sequences()
        kept = self._meta.kept_snapshot()
        self._snapshot = self._scanned() if kept is None else kept
        self.about = about

    def _check_options(self, about: About) -> None:
        made = {"metric": about.metric}
        given: dict[str, object] = {"metric": self._metric or about.metric}
        wanted = self._index_config.get("index_type", "AUTOINDEX")
        if wanted != "AUTOINDEX":  # which is Milvus's own choice
            made["index type"] = self.connection.index_type(self.collections.passages)
            given["index type"] = wanted
        for option, value in made.items():
            if given[option] != value:
                raise GraphRAGValueError(
                    f"{option} {given[option]!r} was asked for, but {self!r} was made with "
                    f"{value!r}, which stays; leave the option out, or build a new index under "
                    "another collection_prefix"
                )

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
        GraphRAGValueError
            If Milvus cannot hold vectors of this length.
        StoreError
            If the index was built with another model, or collections of this prefix hold
            something else.
        """
        if not 1 <= dimension <= MAX_DIMENSION:
            raise GraphRAGValueError(
                f"the embedding model {embedding_model!r} gives vectors of {dimension} dimensions, "
                f"Milvus holds 1 to {MAX_DIMENSION:,}; use another embed_model"
            )
        with self._lock:
            if self.about is None:
                self._open()  # another process may have created it meanwhile
            if self.about is not None:
                self.about.check(dimension, embedding_model, probe)
                return
            metric = self._metric or "COSINE"
            default = {"index_type": "FLAT" if self.connection.is_lite else "AUTOINDEX"}
            for name, fields in self.collections.fields.items():
                self.connection.create(
                    name,
                    fields,
                    dimension=2 if name == self.collections.meta else dimension,
                    metric=metric,
                    index=self._index_config or default,
                    dynamic=name == self.collections.passages,
                )
            short = tuple(round(float(value), 5) for value in probe[:512])
            about = About(dimension, metric, embedding_model, short)
            self._meta.write_about(about)
            self.about = about

    def close(self) -> None:
        """Flush, keep the matrices for the next start, and let go of a Milvus Lite file.

        What needs Milvus fails from then on; closing again does nothing. Vector stores that
        `passage_vector_store` gave end with the last store of a Milvus Lite file.
        """
        with self._lock:
            if self.connection.closed:
                return
            try:
                self._flush(1 if self.connection.is_lite else BULK_ROWS, least_kept=0)
            finally:
                self.connection.close()

    def passage_vector_store(self) -> MilvusVectorStore:
        """Return LlamaIndex's own Milvus vector store over our passages: plain vector RAG.

        Write through the index, not through it: it knows nothing of entities and relations.
        """
        from llama_index_graph_rag.stores.milvus_passages import PassageVectorStore

        about, connection = self._opened, self.connection
        options: dict[str, Any] = {"db_name": connection.db_name} if connection.db_name else {}
        return PassageVectorStore(
            uri=connection.uri,
            token=connection.token,
            collection_name=self.collections.passages,
            dim=about.dimension,
            similarity_metric=about.metric,
            upsert_mode=True,
            **options,
        )

    # --- writing --------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Void what anyone has kept of the graph, before and after a write."""
        try:
            self._meta.bump()
            yield
            self._meta.bump()
        except BaseException:
            self._torn = True  # who knows what was written: read it before the next write
            raise

    def _catch_up(self) -> None:
        """Take in what another store of this process wrote, or what a failed write left."""
        if self.connection.is_lite or self._torn:
            self.refresh()

    def upsert(self, batch: Batch) -> None:
        """Write entities, then relations, then passages; see GraphIndexStore.

        Everything is checked before anything is written. If Milvus fails half way, a StoreError
        asks to write the batch again, which is safe: every id is a content hash. On Milvus Lite,
        what only the former content of a passage stated is vacuumed at once.
        """
        dimension = self._opened.dimension
        entities = {row.id: layout.entity_row(row, dimension) for row in batch.entities}
        relations = {row.id: layout.relation_row(row, dimension) for row in batch.relations}
        passages = {row.node.node_id: layout.passage_row(row, dimension) for row in batch.passages}
        if self._opened.metric == "IP":
            layout.make_unit_vectors([*entities.values(), *relations.values(), *passages.values()])
        with self._lock:
            self._catch_up()
            self._check_references(batch)
            # The spelling first written stays.
            for rows, known in (
                (entities, self._snapshot.entity_rows(list(entities))),
                (relations, self._snapshot.relation_rows(list(relations))),
            ):
                for id in rows.keys() - set(_unknown(rows, known)):
                    del rows[id]
            if not (entities or relations or passages):
                return
            replaces = bool((self._snapshot.passage_rows(list(passages)) >= 0).any())
            with self._writing():
                for collection, rows in (
                    (self.collections.entities, entities),
                    (self.collections.relations, relations),
                    (self.collections.passages, passages),
                ):
                    self.connection.write(collection, list(rows.values()))
                    self._count(len(rows))
                self._snapshot = self._snapshot.with_changes(
                    entities=[EntityKey(row.id, row.text) for row in batch.entities],
                    relations=[
                        RelationKey(row.id, row.subject_id, row.object_id)
                        for row in batch.relations
                    ],
                    passages=[layout.passage_key(row) for row in passages.values()],
                )
                if replaces and self.connection.is_lite:
                    self._remove_orphans()

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

        On a server other processes may have written or vacuumed since, so it is asked (a query a
        thousand ids); Milvus Lite has one process, whose snapshot knows.
        """
        if self.exists and not self.connection.is_lite:
            self._compare(entities, relations)
        snapshot = self._snapshot
        return (
            set(_unknown(entities, snapshot.entity_rows(entities))),
            set(_unknown(relations, snapshot.relation_rows(relations))),
        )

    def _compare(self, entities: Sequence[str], relations: Sequence[str]) -> None:
        """Make the snapshot right about these ids."""
        with self._lock:
            snapshot = self._snapshot
            fields = ["id", "subject_id", "object_id"]
            rows = self.connection.get(self.collections.relations, relations, fields)
            links = {key.id: key for key in map(layout.relation_key, rows)}
            unseen = [links[id] for id in _unknown(links, snapshot.relation_rows(list(links)))]
            ends = [id for key in unseen for id in (key.subject_id, key.object_id)]
            wanted = list(dict.fromkeys([*entities, *ends]))
            rows = self.connection.get(self.collections.entities, wanted, ["id", "text"])
            names = {key.id: key for key in map(layout.entity_key, rows)}
            gone_entities = set(wanted) - names.keys()
            gone_entities -= set(_unknown(wanted, snapshot.entity_rows(wanted)))
            gone_relations = set(relations) - links.keys()
            gone_relations -= set(_unknown(relations, snapshot.relation_rows(relations)))
            new = _unknown(names, snapshot.entity_rows(list(names)))
            if gone_entities or gone_relations or unseen or new:
                self._snapshot = snapshot.with_changes(
                    entities=[names[id] for id in new],
                    relations=unseen,
                    removed_entities=gone_entities,
                    removed_relations=gone_relations,
                )

    def delete_passages(self, ids: Sequence[str]) -> None:
        """Delete passages by id; on Milvus Lite what they alone held is vacuumed at once."""
        with self._lock:
            self._catch_up()
            known = self._snapshot.passage_rows(ids)
            present = [id for id, row in zip(ids, known) if row >= 0]
            # Another process may have written those that are not known here.
            doomed = present if self.connection.is_lite else list(dict.fromkeys(ids))
            if not doomed or not self.exists:
                return
            with self._writing():
                self.connection.delete(self.collections.passages, doomed)
                self._count(len(doomed))
                self._snapshot = self._snapshot.with_changes(removed_passages=present)
                if self.connection.is_lite:
                    self._remove_orphans()

    def delete_documents(self, ref_doc_ids: Sequence[str]) -> None:
        """Delete all passages of these source documents."""
        # No document is called so: passages without one are listed under these.
        documents = [id for id in dict.fromkeys(ref_doc_ids) if id not in ("", layout.NO_DOCUMENT)]
        with self._lock:
            self._catch_up()
            snapshot = self._snapshot
            # What carries the document's hash goes first: a deletion that is broken off must not
            # leave a document that looks whole.
            ids = [id for ref in documents for id in snapshot.document_hashes(ref)]
            ids += [id for ref in documents for id in snapshot.passages_of_document(ref)]
            if self.exists and not self.connection.is_lite:
                for part in parts(documents, MAX_IDS):
                    where = ids_expression(part, "doc_id")
                    for page in self.connection.scan(self.collections.passages, ["id"], where):
                        ids += [str(row["id"]) for row in page]
            self.delete_passages(list(dict.fromkeys(ids)))

    def vacuum(self) -> dict[str, int]:
        """Remove relations that no passage holds and entities without a relation.

        On a server, call it while no other process writes: a relation that another writer just
        began to use would go. `GraphRAGIndex.repair` brings such relations back.
        """
        with self._lock:
            self.refresh()
            if not self.exists:
                return {"entities": 0, "relations": 0}
            with self._writing():
                return self._remove_orphans()

    def _remove_orphans(self) -> dict[str, int]:
        relations = self._snapshot.orphan_relations()
        entities = self._snapshot.orphan_entities()
        if relations or entities:
            self.connection.delete(self.collections.relations, relations)
            self.connection.delete(self.collections.entities, entities)
            self._count(len(relations) + len(entities))
            self._snapshot = self._snapshot.with_changes(
                removed_relations=relations, removed_entities=entities
            )
        return {"entities": len(entities), "relations": len(relations)}

    def _count(self, rows: int) -> None:
        self._unflushed += rows
        self._unkept += rows

    def flush(self) -> None:
        """Seal a bulk that was written, which makes searching it fast, and keep the matrices.

        Small writes to a large index wait for `close`; a process that dies before has the next one
        read the collections.
        """
        graph = self._snapshot
        rows = graph.n_entities + graph.n_relations + graph.n_passages
        least = MAX_UNFLUSHED if self.connection.is_lite else BULK_ROWS
        self._flush(least, least_kept=int(KEEP_FRACTION * rows))

    def _flush(self, least: int, *, least_kept: int) -> None:
        with self._lock:
            if not self.exists:
                return
            if self._unflushed >= least:
                for name in self.collections.with_vectors:
                    self.connection.flush(name)
                self._unflushed = 0
            if not self._torn and self._unkept >= least_kept:
                self._meta.keep(self._snapshot)
                self._unkept = 0

    # --- the graph ------------------------------------------------------------------------------

    def snapshot(self) -> GraphSnapshot:
        """Return the graph as it is now, immutable."""
        return self._snapshot

    def refresh(self, *, full: bool = False, wait: bool = True) -> bool:
        """Take in what other writers wrote (one small query where nothing changed).

        `full` reads all collections again: someone may have changed them behind our back.
        Without `wait` nothing is done while this process writes, nor so soon after the last time
        that steady writers elsewhere would keep a reader reading.
        """
        if not self._lock.acquire(blocking=wait):
            return False
        try:
            if not wait and time.monotonic() < self._rests_until:
                return False
            if not self.exists:
                self._open()
                return self.exists
            sequences = self._meta.read_sequences()
            if sequences == self._meta.sequences and not self._torn and not full:
                return False
            started = time.monotonic()
            self._torn = True  # until all is read: these numbers are of a graph not seen yet
            self._meta.sequences = sequences
            self._snapshot = self._scanned()
            self._torn = False
            now = time.monotonic()
            self._rests_until = now + REST * (now - started)
            return True
        finally:
            self._lock.release()

    def _scanned(self) -> GraphSnapshot:
        # Against the order of writing: whatever a passage states was there before it.
        passages = [key for page in self.scan_passages() for key in page]
        relations = [key for page in self.scan_relations() for key in page]
        snapshot = GraphSnapshot.empty().with_changes(
            entities=(key for page in self.scan_entities() for key in page),
            relations=relations,
            passages=passages,
        )
        self._meta.keep(snapshot)
        self._unkept = 0
        return snapshot

    def stats(self) -> dict[str, int]:
        """Return passages, entities, relations, orphan_entities and orphan_relations."""
        return self._snapshot.stats()


def _unknown(ids: Iterable[str], rows: Rows) -> list[str]:
    return [id for id, row in zip(ids, rows.tolist()) if row < 0]
