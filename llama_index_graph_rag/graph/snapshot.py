"""The graph of an index at one moment: incidence, ids and names, immutable."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from llama_index_graph_rag.graph.adjacency import Adjacency, Rows, row_array
from llama_index_graph_rag.graph.incidence import Incidence
from llama_index_graph_rag.graph.tables import (
    Keys,
    KeyTable,
    TextTable,
    digest_keys,
    hex_keys,
    key_order,
    valid_keys,
)

logger = logging.getLogger("llama_index_graph_rag")

FILE_NAME = "snapshot.npz"
FORMAT = 1
MERGE_FRACTION = 0.05
MERGE_LEAST = 4_096


class PassageKey(NamedTuple):
    """One row of a scan over the passages."""

    id: str
    ref_doc_id: str
    relation_ids: tuple[str, ...]
    content_hash: str
    document_hash: str


class RelationKey(NamedTuple):
    """One row of a scan over the relations."""

    id: str
    subject_id: str
    object_id: str


class EntityKey(NamedTuple):
    """One row of a scan over the entities."""

    id: str
    text: str


@dataclass(frozen=True)
class GraphSnapshot:
    """An immutable graph: safe to read from any thread while a later one is being made.

    Rows are places in this snapshot only: never keep one across snapshots, keep ids. Order that
    does not depend on the history of the index is that of `entity_ranks`, `relation_ranks` and
    `passage_ranks`, not that of rows. Build one from `GraphSnapshot.empty()` with
    `with_changes`; the attributes are for this module.

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
    dangling: int
    _entities: KeyTable
    _relations: KeyTable
    _passages: KeyTable
    _passage_ids: TextTable
    _content_hashes: TextTable
    _document_hashes: TextTable
    _documents: KeyTable
    _document_ids: TextTable
    _passage_documents: Rows
    _document_passages: Adjacency

    @classmethod
    def empty(cls) -> GraphSnapshot:
        """Return a graph without anything."""
        none = row_array([])
        keys = KeyTable(digest_keys([]))
        texts = TextTable.pack([])
        return cls(
            Incidence.build(0, none, none, passages=none, relations=none, n_passages=0),
            *(texts, 0, keys, keys, keys, texts, texts, texts, keys, texts, none),
            Adjacency.from_pairs(0, none, none),
        )

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
        """Number of passage rows, some of them empty since their passage was removed."""
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
        return self._entities.ranks

    @property
    def relation_ranks(self) -> Rows:
        """Place of each relation in the order of ids, shape (n_relations,)."""
        return self._relations.ranks

    @property
    def passage_ranks(self) -> Rows:
        """Place of each passage in the order of its id's hash, shape (n_passages,)."""
        return self._passages.ranks

    # --- ids and rows ---

    def entity_rows(self, ids: Sequence[str]) -> Rows:
        """Return the row of each entity id, -1 where it is unknown."""
        return _rows_of_hex(self._entities, ids)

    def relation_rows(self, ids: Sequence[str]) -> Rows:
        """Return the row of each relation id, -1 where it is unknown."""
        return _rows_of_hex(self._relations, ids)

    def passage_rows(self, ids: Sequence[str]) -> Rows:
        """Return the row of each passage id, -1 where it is unknown or removed."""
        rows = self._passages.rows(digest_keys(ids))
        known = np.flatnonzero(rows >= 0)
        rows[known[self._passage_documents[rows[known]] < 0]] = -1
        return rows

    def entity_ids(self, rows: Sequence[int] | Rows) -> list[str]:
        """Return the ids of these entity rows."""
        return self._entities.hex(rows)

    def relation_ids(self, rows: Sequence[int] | Rows) -> list[str]:
        """Return the ids of these relation rows."""
        return self._relations.hex(rows)

    def passage_ids(self, rows: Sequence[int] | Rows) -> list[str]:
        """Return the ids of these passage rows."""
        return self._passage_ids.take(rows)

    # --- passages ---

    def ref_doc_ids(self, rows: Sequence[int] | Rows) -> list[str]:
        """Return the ids of the source documents of these passage rows."""
        return self._document_ids.take(self._passage_documents[row_array(rows)])

    def content_hash(self, passage_id: str) -> str | None:
        """Return the hash of the passage's content, None if there is no such passage."""
        row = self.passage_rows([passage_id])[0]
        return None if row < 0 else self._content_hashes[row]

    def document_hash(self, ref_doc_id: str) -> str | None:
        """Return the hash of the source document, None if no passage of it is here."""
        rows = self._rows_of_document(ref_doc_id)
        return self._document_hashes[int(rows[0])] if len(rows) else None

    def passages_of_document(self, ref_doc_id: str) -> list[str]:
        """Return the ids of the document's passages, ascending."""
        return sorted(self.passage_ids(self._rows_of_document(ref_doc_id)))

    def _rows_of_document(self, ref_doc_id: str) -> Rows:
        row = self._documents.rows(digest_keys([ref_doc_id]))
        rows = self._document_passages.gather(row[row >= 0])[1]
        return rows[np.argsort(self._passages.take(rows))]

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
            and ``orphan_relations`` that none does; ``dangling_references`` left out since they
            name an entity or relation that was never given.
        """
        return dict(self._stats)

    @cached_property
    def _stats(self) -> dict[str, int]:
        relations = int(self.incidence.visible.sum())
        entities = int((self.incidence.entity_degree > 0).sum())
        return {
            "passages": int((self._passage_documents >= 0).sum()),
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
        changed is worth merging into the base. Give a bulk load in one call.

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
            If the id of an entity or relation is not 32 hexadecimal digits.

        Notes
        -----
        A relation between unknown entities, or a passage's relation that is unknown, is left out,
        counted in ``stats()["dangling_references"]`` and logged: an index that is damaged can
        still be opened, to be repaired.
        """
        gone_relations, gone_entities = list(removed_relations), list(removed_entities)
        graph = self
        if gone_relations or gone_entities:
            graph = graph._merged(gone_entities, gone_relations)
        graph = graph._with_entities(entities)._with_relations(relations)
        graph = graph._with_passages(passages, removed_passages)
        return graph._merged() if graph._is_worth_merging() else graph

    def _with_entities(self, entities: Iterable[EntityKey]) -> GraphSnapshot:
        first: dict[str, str] = {}
        for key in entities:
            first.setdefault(key[0], key[1])
        keys = valid_keys(list(first), "an entity")
        new = self._entities.rows(keys) < 0
        if not new.any():
            return self
        texts = [text for text, is_new in zip(first.values(), new.tolist()) if is_new]
        return self._changed(
            _entities=self._entities.appended(keys[new]),
            entity_names=self.entity_names.appended(texts),
            incidence=_grown(self.incidence, n_entities=self.n_entities + len(texts)),
        )

    def _with_relations(self, relations: Iterable[RelationKey]) -> GraphSnapshot:
        given = list({key[0]: key for key in relations}.values())
        keys = valid_keys([key[0] for key in given], "a relation")
        new = self._relations.rows(keys) < 0
        if not new.any():
            return self
        rows = np.flatnonzero(new).tolist()
        subjects = self.entity_rows([given[row][1] for row in rows])
        objects = self.entity_rows([given[row][2] for row in rows])
        whole = (subjects >= 0) & (objects >= 0)
        table = self._relations.appended(keys[new][whole])
        return self._changed(
            _relations=table,
            incidence=_grown(
                self.incidence,
                subjects=subjects[whole],
                objects=objects[whole],
                ranks=_ranks(table),
            ),
            dangling=self.dangling + _count_dangling(whole, "relation(s) between entities"),
        )

    def _with_passages(
        self, passages: Iterable[PassageKey], removed: Iterable[str]
    ) -> GraphSnapshot:
        given = list({key[0]: key for key in passages}.values())
        gone = self.passage_rows([*removed, *(key[0] for key in given)])
        gone = np.unique(gone[gone >= 0])
        if not len(gone) and not given:
            return self
        documents, document_ids = self._documents, self._document_ids
        names = list(dict.fromkeys(key[1] for key in given))
        name_keys = digest_keys(names)
        new = documents.rows(name_keys) < 0
        documents = documents.appended(name_keys[new])
        document_ids = document_ids.appended(
            name for name, is_new in zip(names, new.tolist()) if is_new
        )
        rows = np.arange(self.n_passages, self.n_passages + len(given), dtype=np.int32)
        owners = documents.rows(digest_keys(key[1] for key in given))
        passage_documents = np.concatenate([self._passage_documents, owners])
        passage_documents[gone] = -1
        stating = np.repeat(rows, [len(key[2]) for key in given])
        stated = self.relation_rows([id for key in given for id in key[2]])
        known = stated >= 0
        return self._changed(
            incidence=self.incidence.with_changes(
                n_entities=self.n_entities,
                subjects=row_array([]),
                objects=row_array([]),
                n_passages=self.n_passages + len(given),
                pairs=(stating[known], stated[known]),
                removed=gone,
                relation_ranks=self.incidence.relation_ranks,
            ),
            dangling=self.dangling + _count_dangling(known, "statement(s) of relations"),
            _passages=self._passages.appended(digest_keys(key[0] for key in given)),
            _passage_ids=self._passage_ids.appended(key[0] for key in given),
            _content_hashes=self._content_hashes.appended(key[3] for key in given),
            _document_hashes=self._document_hashes.appended(key[4] for key in given),
            _documents=documents,
            _document_ids=document_ids,
            _passage_documents=passage_documents,
            _document_passages=self._document_passages.updated(
                len(documents),
                add=(owners, rows),
                touched=self._passage_documents[gone],
                drop=gone,
            ),
        )

    def _changed(self, **changes: object) -> GraphSnapshot:
        # dataclasses.replace would do, at the price of an untyped call for each field.
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return GraphSnapshot(**{**values, **changes})  # type: ignore[arg-type]

    def _is_worth_merging(self) -> bool:
        tails = sum(len(t.tail) for t in (self._entities, self._relations, self._passages))
        base = self.n_relations + self.n_passages + self.n_entities
        return tails + self.incidence.n_delta > max(MERGE_LEAST, MERGE_FRACTION * base)

    def _merged(
        self, gone_entities: Sequence[str] = (), gone_relations: Sequence[str] = ()
    ) -> GraphSnapshot:
        """Return the same graph in one piece, rows in the order of ids, without dead rows."""
        entities = _kept(self._entities, self.entity_rows(gone_entities))
        new_entity = _renumbering(entities, self.n_entities)
        dead = np.union1d(
            self.relation_rows(gone_relations),
            np.flatnonzero((new_entity[self.subjects] < 0) | (new_entity[self.objects] < 0)),
        )
        relations = _kept(self._relations, dead)
        new_relation = _renumbering(relations, self.n_relations)
        passages = _kept(self._passages, np.flatnonzero(self._passage_documents < 0))
        owners = self._passage_documents[passages]
        used = np.unique(owners)
        documents = used[key_order(self._documents.take(used))]
        owners = _renumbering(documents, len(self._documents))[owners]
        indptr, stated = self.incidence.relations_of_passages(passages)
        stating = np.repeat(np.arange(len(passages), dtype=np.int32), np.diff(indptr))
        stated = new_relation[stated]
        return GraphSnapshot(
            incidence=Incidence.build(
                len(entities),
                new_entity[self.subjects[relations]],
                new_entity[self.objects[relations]],
                passages=stating[stated >= 0],
                relations=stated[stated >= 0],
                n_passages=len(passages),
            ),
            entity_names=self.entity_names.packed(entities),
            dangling=self.dangling,
            _entities=KeyTable(self._entities.take(entities)),
            _relations=KeyTable(self._relations.take(relations)),
            _passages=KeyTable(self._passages.take(passages)),
            _passage_ids=self._passage_ids.packed(passages),
            _content_hashes=self._content_hashes.packed(passages),
            _document_hashes=self._document_hashes.packed(passages),
            _documents=KeyTable(self._documents.take(documents)),
            _document_ids=self._document_ids.packed(documents),
            _passage_documents=owners,
            _document_passages=Adjacency.from_pairs(
                len(documents), owners, np.arange(len(passages), dtype=np.int32)
            ),
        )

    # --- on disk ---

    def save(self, folder: str | Path, *, version: str = "") -> None:
        """Write the graph to `folder` as one file, whole or not at all.

        Parameters
        ----------
        folder
            Created if missing.
        version
            What the graph corresponds to in the store; `load` asks for it again.
        """
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        graph = self._merged()
        arrays = {
            "subjects": graph.subjects,
            "objects": graph.objects,
            "passage_documents": graph._passage_documents,
            "entities": graph._entities.base,
            "relations": graph._relations.base,
            "passages": graph._passages.base,
            "documents": graph._documents.base,
        }
        for name in _ADJACENCIES:
            part: Adjacency = getattr(graph.incidence, name, None) or graph._document_passages
            arrays[f"{name}.indptr"], arrays[f"{name}.indices"] = part.indptr, part.indices
        for name in _TEXTS:
            table: TextTable = getattr(graph, name)
            arrays[f"{name}.buffer"], arrays[f"{name}.offsets"] = table.buffer, table.offsets
        header = {"format": FORMAT, "version": version, "dangling": self.dangling}
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        handle, temporary = tempfile.mkstemp(dir=target, prefix=FILE_NAME, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez(file, **arrays)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target / FILE_NAME)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    @classmethod
    def load(cls, folder: str | Path, *, version: str | None = None) -> GraphSnapshot | None:
        """Read a graph that `save` wrote.

        Returns
        -------
        GraphSnapshot or None
            None if there is none, if it has another `version` (where one is asked for) or another
            format, or if the file is damaged (each array carries a checksum), which is logged:
            read the store again.
        """
        path = Path(folder) / FILE_NAME
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as file:
                header = json.loads(file["header"].tobytes())
                if header["format"] != FORMAT or version not in (None, header["version"]):
                    return None
                return _assemble({name: file[name] for name in file.files}, header["dangling"])
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
            logger.warning("%s is damaged and not used: %s", path, error)
            return None


_ADJACENCIES = (
    "entity_relations",
    "relation_passages",
    "passage_relations",
    "document_passages",
)
_TEXTS = ("entity_names", "_passage_ids", "_content_hashes", "_document_hashes", "_document_ids")


def _assemble(arrays: dict[str, np.ndarray], dangling: int) -> GraphSnapshot:
    parts = {}
    for name in _ADJACENCIES:
        indptr = arrays[f"{name}.indptr"]
        parts[name] = Adjacency(len(indptr) - 1, indptr, arrays[f"{name}.indices"])
    texts = {
        name: TextTable(arrays[f"{name}.buffer"], arrays[f"{name}.offsets"]) for name in _TEXTS
    }
    document_passages = parts.pop("document_passages")
    return GraphSnapshot(
        incidence=Incidence(arrays["subjects"], arrays["objects"], **parts),
        dangling=dangling,
        _entities=KeyTable(arrays["entities"]),
        _relations=KeyTable(arrays["relations"]),
        _passages=KeyTable(arrays["passages"]),
        _documents=KeyTable(arrays["documents"]),
        _passage_documents=arrays["passage_documents"],
        _document_passages=document_passages,
        **texts,
    )


def _rows_of_hex(table: KeyTable, ids: Sequence[str]) -> Rows:
    keys, valid = hex_keys(ids)
    rows = table.rows(keys)
    rows[~valid] = -1
    return rows


def _ranks(table: KeyTable) -> Rows | None:
    return table.ranks if len(table.tail) else None


def _grown(
    incidence: Incidence,
    *,
    n_entities: int | None = None,
    subjects: Rows | None = None,
    objects: Rows | None = None,
    ranks: Rows | None = None,
) -> Incidence:
    none = row_array([])
    return incidence.with_changes(
        n_entities=incidence.n_entities if n_entities is None else n_entities,
        subjects=none if subjects is None else subjects,
        objects=none if objects is None else objects,
        n_passages=incidence.n_passages,
        pairs=(none, none),
        removed=none,
        relation_ranks=incidence.relation_ranks if ranks is None else ranks,
    )


def _kept(table: KeyTable, dead: Rows) -> Rows:
    alive = np.ones(len(table), dtype=np.bool_)
    alive[dead[dead >= 0]] = False
    rows = np.flatnonzero(alive).astype(np.int32)
    keys: Keys = table.take(rows)
    return rows[key_order(keys)]


def _renumbering(kept: Rows, size: int) -> Rows:
    places = np.full(size, -1, dtype=np.int32)
    places[kept] = np.arange(len(kept), dtype=np.int32)
    return places


def _count_dangling(whole: np.ndarray, what: str) -> int:
    count = int((~whole).sum())
    if count:
        logger.warning(
            "%d %s that the graph does not know were left out; run repair() on the store",
            count,
            what,
        )
    return count
