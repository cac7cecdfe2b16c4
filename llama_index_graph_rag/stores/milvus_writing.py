"""Writing an index in Milvus: rows in and out, and the graph that follows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from llama_index_graph_rag.graph.adjacency import Rows
from llama_index_graph_rag.graph.snapshot import EntityKey, RelationKey
from llama_index_graph_rag.stores import milvus_layout as layout
from llama_index_graph_rag.stores.base import Batch, PassageRow, StaleBatchError
from llama_index_graph_rag.stores.milvus_connection import MAX_IDS, parts
from llama_index_graph_rag.stores.milvus_filters import ids_expression
from llama_index_graph_rag.stores.milvus_reading import MAX_UNFLUSHED, MilvusReading

BULK_ROWS = 10_000
"""Rows on a server from which a bulk is sealed; a server limits how often one may ask for it."""
KEEP_FRACTION = 0.05
"""Part of all rows that has to be written before the matrices are kept anew."""


class MilvusWriting(MilvusReading):
    """The half of `MilvusGraphStore` that writes."""

    _unkept: int

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Void what anyone has kept of the graph, before and after a write."""
        try:
            self._meta.bump()
            yield
            self._meta.bump()
            self._meta.publish(self._snapshot)
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
        entities = layout.entity_columns(batch.entities, dimension)
        relations = layout.relation_columns(batch.relations, dimension)
        passages = layout.passage_columns(batch.passages, dimension)
        if self._opened.metric == "IP":
            entities, relations, passages = entities.unit(), relations.unit(), passages.unit()
        with self._lock:
            self._catch_up()
            self._check_references(batch)
            # The spelling first written stays.
            graph = self._snapshot
            entities = entities.only(graph.entity_rows(entities.ids) < 0)
            relations = relations.only(graph.relation_rows(relations.ids) < 0)
            if not (entities or relations or passages):
                return
            replaced = passages.only(graph.passage_rows(passages.ids) >= 0).ids
            if replaced and self.connection.is_lite:
                stored = self.connection.get(self.collections.passages, replaced, ["id", "$meta"])
                passages = layout.forgetting(passages, stored)
            with self._writing():
                for collection, columns in (
                    (self.collections.entities, entities),
                    (self.collections.relations, relations),
                    (self.collections.passages, passages),
                ):
                    self.connection.write(collection, columns)
                    self._count(len(columns))
                named, linked = entities.texts, relations.texts
                ends = linked["subject_id"], linked["object_id"]
                vector_of = dict(zip(passages.ids, passages.vectors))
                self._snapshot = graph.with_changes(
                    entities=map(EntityKey, named["id"], named["text"], entities.vectors),
                    relations=map(RelationKey, linked["id"], *ends, relations.vectors),
                    passages=(
                        layout.written_key(row, vector_of[row.node.node_id])
                        for row in batch.passages
                    ),
                )
                if replaced and self.connection.is_lite:
                    self._remove_orphans()

    def check(self, passage: PassageRow) -> None:
        """Raise GraphRAGValueError if the passage is over Milvus's limits."""
        layout.pack_passage(passage)

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
            # Believing what was kept must be safe: see `_mend`.
            sealed = not (self.connection.is_lite and self._unflushed)
            if sealed and not self._torn and self._unkept >= least_kept:
                self._snapshot = self._snapshot.merged()
                self._meta.keep(self._snapshot)
                self._unkept = 0


def _unknown(ids: Iterable[str], rows: Rows) -> list[str]:
    return [id for id, row in zip(ids, rows.tolist()) if row < 0]
