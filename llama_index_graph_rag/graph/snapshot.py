"""The graph of an index at one moment: incidence, ids and names, immutable."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from llama_index_graph_rag.graph import snapshot_file
from llama_index_graph_rag.graph.adjacency import Rows, distinct, row_array
from llama_index_graph_rag.graph.incidence import Incidence
from llama_index_graph_rag.graph.keys import EntityKey, PassageKey, RelationKey
from llama_index_graph_rag.graph.passages import PassageTable
from llama_index_graph_rag.graph.tables import (
    KeyTable,
    TextTable,
    digest_keys,
    key_order,
    renumbering,
    valid_keys,
)
from llama_index_graph_rag.graph.vectors import VectorTables

__all__ = ["EntityKey", "GraphSnapshot", "PassageKey", "RelationKey"]

logger = logging.getLogger("llama_index_graph_rag")

MERGE_FRACTION = 0.1
MERGE_LEAST = 4_096


@dataclass(frozen=True, eq=False)
class GraphSnapshot:
    """An immutable graph: safe to read from any thread while a later one is being made.

    Rows are places in this snapshot only: keep ids across snapshots, never rows. An order that
    does not depend on the history of the index is that of `entity_ranks`, `relation_ranks` and
    `passage_ranks`, not that of rows. Build one from `GraphSnapshot.empty()` by `with_changes`.

    Attributes
    ----------
    incidence
        Which entities, relations and passages touch.
    entity_names
        First spelling of each entity, by row.
    entities, relations, passages
        The id tables; use the methods below.
    dangling
        See `stats`.
    vectors
        The vectors, if the graph is to hold them: then the key of whatever is added needs one.

    Examples
    --------
    >>> from llama_index_graph_rag.identity import entity_id
    >>> from llama_index_graph_rag.triplets import Triplet
    >>> triplet = Triplet("Euler", "was a student of", "Johann Bernoulli")
    >>> graph = GraphSnapshot.empty().with_changes(
    ...     entities=[EntityKey(entity_id(n), n) for n in (triplet.subject, triplet.object)],
    ...     relations=[RelationKey(triplet.id, triplet.subject_id, triplet.object_id)],
    ...     passages=[PassageKey("p1", "book", (triplet.id,), "", "")],
    ... )
    >>> row = graph.entity_rows([entity_id("johann bernoulli")])[0]
    >>> graph.entity_names[row]
    'Johann Bernoulli'
    >>> graph.stats()["relations"]
    1
    """

    incidence: Incidence
    entity_names: TextTable
    entities: KeyTable
    relations: KeyTable
    passages: PassageTable
    dangling: int = 0
    vectors: VectorTables | None = None

    @classmethod
    def empty(cls, dimension: int = 0) -> GraphSnapshot:
        """Return a graph without anything, which will hold vectors of this length, 0 for none."""
        none, keys = row_array([]), KeyTable(digest_keys([]))
        incidence = Incidence.build(0, none, none, passages=none, relations=none, n_passages=0)
        vectors = VectorTables.empty(dimension) if dimension else None
        return cls(incidence, TextTable.pack([]), keys, keys, PassageTable.empty(), vectors=vectors)

    # --- sizes and arrays ---

    @property
    def n_entities(self) -> int:
        """Number of entity rows."""
        return self.incidence.n_entities

    @property
    def n_relations(self) -> int:
        """Number of relation rows, those that no passage holds among them."""
        return self.incidence.n_relations

    @property
    def n_passages(self) -> int:
        """Number of passage rows; the row of a removed passage is empty until the next merge."""
        return self.incidence.n_passages

    @property
    def subjects(self) -> Rows:
        """Entity row of each relation's subject, shape (n_relations,)."""
        return self.incidence.subjects

    @property
    def objects(self) -> Rows:
        """Entity row of each relation's object, shape (n_relations,)."""
        return self.incidence.objects

    @property
    def entity_ranks(self) -> Rows:
        """Place of each entity in the order of ids, shape (n_entities,)."""
        return self.entities.ranks

    @property
    def relation_ranks(self) -> Rows:
        """Place of each relation in the order of ids, shape (n_relations,)."""
        return self.relations.ranks

    @property
    def passage_ranks(self) -> Rows:
        """Place of each passage in the order of its id's hash, shape (n_passages,)."""
        return self.passages.keys.ranks

    # --- ids and rows ---

    def entity_rows(self, ids: Sequence[str]) -> Rows:
        """Return the row of each entity id, -1 where it is unknown."""
        return self.entities.rows_of_hex(ids)

    def relation_rows(self, ids: Sequence[str]) -> Rows:
        """Return the row of each relation id, -1 where it is unknown."""
        return self.relations.rows_of_hex(ids)

    def passage_rows(self, ids: Sequence[str]) -> Rows:
        """Return the row of each passage id, -1 where it is unknown or removed."""
        return self.passages.rows(ids)

    def entity_ids(self, rows: Sequence[int] | NDArray[np.integer]) -> list[str]:
        """Return the ids of these entity rows."""
        return self.entities.hex(rows)

    def relation_ids(self, rows: Sequence[int] | NDArray[np.integer]) -> list[str]:
        """Return the ids of these relation rows."""
        return self.relations.hex(rows)

    def passage_ids(self, rows: Sequence[int] | NDArray[np.integer]) -> list[str]:
        """Return the ids of these passage rows."""
        return self.passages.ids.take(rows)

    # --- passages ---

    def ref_doc_ids(self, rows: Sequence[int] | NDArray[np.integer]) -> list[str]:
        """Return the ids of the source documents of these passage rows."""
        return self.passages.ref_doc_ids(rows)

    def content_hash(self, passage_id: str) -> str | None:
        """Return the hash of the passage's content, None if there is no such passage."""
        return self.content_hashes([passage_id])[0]

    def content_hashes(self, passage_ids: Sequence[str]) -> list[str | None]:
        """Return the hash of each passage's content, None where there is no such passage."""
        rows = self.passage_rows(passage_ids).tolist()
        return [None if row < 0 else self.passages.content_hashes[row] for row in rows]

    def document_hash(self, ref_doc_id: str) -> str | None:
        """Return the hash of the source document, None if no passage of it is here.

        Any passage may carry it; it is empty while the document is not complete.
        """
        if not len(self.passages.of_document(ref_doc_id)):
            return None
        hashes = set(self.document_hashes(ref_doc_id).values())
        return hashes.pop() if len(hashes) == 1 else ""

    def document_hashes(self, ref_doc_id: str) -> dict[str, str]:
        """Return the passages that carry a hash of their document, with that hash."""
        rows = self.passages.of_document(ref_doc_id)
        hashes = [self.passages.document_hashes[row] for row in rows.tolist()]
        return {id: hash for id, hash in zip(self.passage_ids(rows), hashes) if hash}

    def passages_of_document(self, ref_doc_id: str) -> list[str]:
        """Return the ids of the document's passages, ascending."""
        return sorted(self.passage_ids(self.passages.of_document(ref_doc_id)))

    # --- what is left over ---

    def orphan_relations(self) -> list[str]:
        """Return the ids of the relations that no passage holds, ascending."""
        return sorted(self.relation_ids(np.flatnonzero(~self.incidence.visible)))

    def orphan_entities(self) -> list[str]:
        """Return the ids of the entities without a relation that a passage holds, ascending."""
        return sorted(self.entity_ids(np.flatnonzero(self.incidence.entity_degree == 0)))

    def stats(self) -> dict[str, int]:
        """Return how much there is.

        Returns
        -------
        dict
            ``passages``; ``entities`` and ``relations`` that a passage holds; ``orphan_entities``
            and ``orphan_relations`` that none does; ``dangling_references``, left out since they
            name an entity or a relation that was never given.
        """
        return dict(self._stats)

    @cached_property
    def _stats(self) -> dict[str, int]:
        relations = int(self.incidence.visible.sum())
        entities = int((self.incidence.entity_degree > 0).sum())
        return {
            "passages": self.passages.n_alive,
            "entities": entities,
            "relations": relations,
            "orphan_entities": self.n_entities - entities,
            "orphan_relations": self.n_relations - relations,
            "dangling_references": self.dangling,
        }

    # --- change ---

    def with_changes(
        self,
        *,
        entities: Iterable[EntityKey] = (),
        relations: Iterable[RelationKey] = (),
        passages: Iterable[PassageKey] = (),
        removed_passages: Iterable[str] = (),
        removed_relations: Iterable[str] = (),
        removed_entities: Iterable[str] = (),
    ) -> GraphSnapshot:
        """Return the graph after these changes; this one stays as it is.

        Removals come before additions. The cost follows the change, not the graph, until what
        has changed is worth merging into the base. Give a bulk load in one call.

        Parameters
        ----------
        entities, relations
            New ones; one whose id is here already is left as it is (the first spelling stays).
        passages
            Passages to put; one whose id is here already is replaced with all its relations.
            Of several with one id the last counts.
        removed_passages
            Ids; their relations become invisible where no other passage holds them.
        removed_relations, removed_entities
            Ids to forget for good, as after a vacuum; an entity takes its relations along.
            The whole graph is merged.

        Raises
        ------
        GraphRAGValueError
            If the id of an entity or relation is not 32 hexadecimal digits, or the graph holds
            vectors and a key comes without.

        Notes
        -----
        A relation between unknown entities, and a passage's relation that is unknown, are left
        out, counted in ``stats()["dangling_references"]`` and logged: an index that is damaged
        can still be opened, to be repaired.
        """
        gone_entities, gone_relations = list(removed_entities), list(removed_relations)
        graph = self
        if gone_entities or gone_relations:
            graph = graph._without(
                self.entity_rows(gone_entities), self.relation_rows(gone_relations)
            )
        graph = graph._with_entities(entities)._with_relations(relations)
        graph = graph._with_passages(list(passages), list(removed_passages))
        return graph.merged() if graph._is_worth_merging() else graph

    def _with_entities(self, entities: Iterable[EntityKey]) -> GraphSnapshot:
        first: dict[str, EntityKey] = {}
        for key in entities:
            first.setdefault(key.id, key)
        keys = valid_keys(list(first), "an entity")
        new = self.entities.rows(keys) < 0
        if not new.any():
            return self
        added = [key for key, is_new in zip(first.values(), new) if is_new]
        names = [key.text for key in added]
        return replace(
            self,
            vectors=self.vectors and self.vectors.appended(entities=[key.vector for key in added]),
            entities=self.entities.appended(keys[new]),
            entity_names=self.entity_names.appended(names),
            incidence=self.incidence.with_changes(n_entities=self.n_entities + len(names)),
        )

    def _with_relations(self, relations: Iterable[RelationKey]) -> GraphSnapshot:
        given = list({key[0]: key for key in relations}.values())
        keys = valid_keys([key[0] for key in given], "a relation")
        new = self.relations.rows(keys) < 0
        if not new.any():
            return self
        rows = np.flatnonzero(new).tolist()
        subjects = self.entity_rows([given[row][1] for row in rows])
        objects = self.entity_rows([given[row][2] for row in rows])
        whole = (subjects >= 0) & (objects >= 0)
        table = self.relations.appended(keys[new][whole])
        added = [given[row] for row, is_whole in zip(rows, whole) if is_whole]
        return replace(
            self,
            vectors=self.vectors and self.vectors.appended(relations=[key.vector for key in added]),
            relations=table,
            incidence=self.incidence.with_changes(
                subjects=subjects[whole], objects=objects[whole], relation_ranks=table.ranks_of
            ),
            dangling=self.dangling + _count_dangling(whole, "relations between entities"),
        )

    def _with_passages(self, given: Sequence[PassageKey], removed: Sequence[str]) -> GraphSnapshot:
        given = list({key[0]: key for key in given}.values())
        gone = self.passage_rows([*removed, *(key[0] for key in given)])
        gone = distinct(gone[gone >= 0])
        if not len(gone) and not given:
            return self
        rows = np.arange(self.n_passages, self.n_passages + len(given), dtype=np.int32)
        stating = np.repeat(rows, [len(key[2]) for key in given])
        stated = self.relation_rows([id for key in given for id in key[2]])
        known = stated >= 0
        return replace(
            self,
            vectors=self.vectors and self.vectors.appended(passages=[key.vector for key in given]),
            incidence=self.incidence.with_changes(
                n_passages=self.n_passages + len(given),
                passages=stating[known],
                relations=stated[known],
                removed=gone,
            ),
            passages=self.passages.changed(given, gone),
            dangling=self.dangling + _count_dangling(known, "statements of relations"),
        )

    def _is_worth_merging(self) -> bool:
        tails = len(self.entities.tail) + len(self.relations.tail) + len(self.passages.keys.tail)
        rows = self.n_entities + self.n_relations + self.n_passages
        # Each new relation of a hub counts all of the hub's.
        delta = max(MERGE_LEAST, 2.5 * MERGE_FRACTION * self.incidence.n_base)
        return tails > max(MERGE_LEAST, MERGE_FRACTION * rows) or self.incidence.n_delta > delta

    def merged(self) -> GraphSnapshot:
        """Return the same graph in one piece, rows in the order of ids, without dead rows."""
        none = row_array([])
        whole = not (len(self.entities.tail) or len(self.relations.tail) or self.incidence.n_delta)
        whole = whole and self.passages.n_alive == len(self.passages.keys.base)
        return self if whole else self._without(none, none)

    def _without(self, gone_entities: Rows, gone_relations: Rows) -> GraphSnapshot:
        entities = _kept(self.entities, gone_entities)
        new_entity = renumbering(entities, self.n_entities)
        loose = (new_entity[self.subjects] < 0) | (new_entity[self.objects] < 0)
        relations = _kept(self.relations, distinct(gone_relations, np.flatnonzero(loose)))
        new_relation = renumbering(relations, self.n_relations)
        rows, passages = self.passages.merged()
        indptr, stated = self.incidence.relations_of_passages(rows)
        stating = np.repeat(np.arange(len(rows), dtype=np.int32), np.diff(indptr))
        stated = new_relation[stated]
        incidence = Incidence.build(
            len(entities),
            new_entity[self.subjects[relations]],
            new_entity[self.objects[relations]],
            passages=stating[stated >= 0],
            relations=stated[stated >= 0],
            n_passages=len(rows),
        )
        return GraphSnapshot(
            incidence,
            self.entity_names.packed(entities),
            KeyTable(self.entities.take(entities)),
            KeyTable(self.relations.take(relations)),
            passages,
            self.dangling,
            self.vectors and self.vectors.reordered(entities, relations, rows),
        )

    # --- on disk ---

    def save(self, folder: str | Path, *, version: str = "") -> None:
        """Write the graph to `folder`, whole or not at all; vectors in files of their own.

        Parameters
        ----------
        folder
            Created if missing.
        version
            What state of the store the graph shows; `load` can ask for it again.
        """
        snapshot_file.save(self, folder, version)

    @classmethod
    def load(cls, folder: str | Path, *, version: str | None = None) -> GraphSnapshot | None:
        """Read a graph that `save` wrote.

        Returns
        -------
        GraphSnapshot or None
            None if there is none, if it has another `version` (where one is asked for) or
            another format, or if a file is missing or damaged, which is logged: read the store
            again. Every array carries a checksum; of vectors, which are mapped into memory, only
            the shapes are checked.
        """
        return snapshot_file.load(folder, version)


def _kept(table: KeyTable, gone: Rows) -> Rows:
    """Return the other rows, in the order of keys."""
    alive = np.ones(len(table), dtype=np.bool_)
    alive[gone[gone >= 0]] = False
    rows = np.flatnonzero(alive).astype(np.int32)
    return rows[key_order(table.take(rows))]


def _count_dangling(known: NDArray[np.bool_], what: str) -> int:
    count = int((~known).sum())
    if count:
        logger.warning(
            "%d %s that the graph does not know were left out; repair the index", count, what
        )
    return count
