"""Incidence of entities, relations and passages, and expansion over it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError
from llama_index_graph_rag.graph.adjacency import (
    Adjacency,
    Mask,
    Pointers,
    Rows,
    distinct,
    row_array,
    unique_pairs,
)
from llama_index_graph_rag.graph.expansion import Expansion, Relevance, Walk

__all__ = ["Expansion", "Incidence", "Relevance"]


@dataclass(frozen=True, eq=False)
class Incidence:
    """Which entities, relations and passages touch; rows are int32, the object is immutable.

    A relation that no passage holds is invisible: its column is empty in every matrix. A pair
    counts once however often it was given, and a self-loop touches its entity once.

    Attributes
    ----------
    subjects, objects
        Entity rows of each relation, shape (n_relations,), also of the invisible ones.
    entity_relations, relation_passages, passage_relations
        The adjacency, by row.
    relation_ranks
        Gives the place of relation rows in the order of ids, by which ties are broken; None if
        rows are in that order.

    Examples
    --------
    >>> graph = Incidence.build(3, [0, 1], [1, 2], passages=[0, 0], relations=[0, 1], n_passages=1)
    >>> graph.expand(entities=[0], degree=0).relations
    array([0], dtype=int32)
    >>> graph.expand(entities=[0], degree=1).relations
    array([0, 1], dtype=int32)
    """

    subjects: Rows
    objects: Rows
    entity_relations: Adjacency
    relation_passages: Adjacency
    passage_relations: Adjacency
    relation_ranks: Callable[[Rows], Rows] | None = None

    @classmethod
    def build(
        cls,
        n_entities: int,
        subjects: object,
        objects: object,
        *,
        passages: object,
        relations: object,
        n_passages: int,
    ) -> Incidence:
        """Build from the endpoints of each relation and from (passage, relation) pairs.

        Parameters
        ----------
        n_entities, n_passages
            Numbers of rows.
        subjects, objects
            Entity rows, one a relation.
        passages, relations
            Rows of the pairs "this passage states this relation", same length.

        Raises
        ------
        GraphRAGValueError
            If arrays differ in length or a row is out of range.
        """
        subjects, objects = row_array(subjects), row_array(objects)
        passages, relations = row_array(passages), row_array(relations)
        if len(subjects) != len(objects) or len(passages) != len(relations):
            raise GraphRAGValueError(
                f"{len(subjects)} subjects with {len(objects)} objects, {len(passages)} passages "
                f"with {len(relations)} relations: each pair needs both of its sides"
            )
        for rows in (subjects, objects):
            _check_rows(rows, n_entities, "entity")
        _check_rows(passages, n_passages, "passage")
        _check_rows(relations, len(subjects), "relation")
        relation_passages = Adjacency.from_pairs(len(subjects), relations, passages)
        visible = np.flatnonzero(relation_passages.all_lengths()).astype(np.int32)
        return cls(
            subjects,
            objects,
            Adjacency.from_pairs(
                n_entities,
                np.concatenate([subjects[visible], objects[visible]]),
                np.concatenate([visible, visible]),
            ),
            relation_passages,
            Adjacency.from_pairs(n_passages, passages, relations),
        )

    # --- sizes ---

    @property
    def n_entities(self) -> int:
        """Number of entity rows."""
        return self.entity_relations.n_rows

    @property
    def n_relations(self) -> int:
        """Number of relation rows, visible or not."""
        return self.relation_passages.n_rows

    @property
    def n_passages(self) -> int:
        """Number of passage rows, removed ones among them until the delta is merged."""
        return self.passage_relations.n_rows

    @property
    def n_delta(self) -> int:
        """Number of entries written over the base matrices."""
        return sum(part.n_over for part in self._parts)

    @property
    def n_base(self) -> int:
        """Number of entries of the base matrices."""
        return sum(len(part.indices) for part in self._parts)

    @property
    def _parts(self) -> tuple[Adjacency, Adjacency, Adjacency]:
        return self.entity_relations, self.relation_passages, self.passage_relations

    # --- rows ---

    def relations_of_entities(self, rows: object) -> tuple[Pointers, Rows]:
        """Return the visible relations of these entities as (indptr, relation rows)."""
        return self.entity_relations.gather(_checked(rows, self.n_entities, "entity"))

    def entities_of_relations(self, rows: object) -> tuple[Pointers, Rows]:
        """Return subject and object (once for a self-loop) of these relations, if visible."""
        rows = _checked(rows, self.n_relations, "relation")
        ends = np.stack([self.subjects[rows], self.objects[rows]], axis=1)
        keep = np.repeat(self.is_visible(rows), 2).reshape(-1, 2)
        keep[:, 1] &= ends[:, 0] != ends[:, 1]
        indptr = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(keep.sum(axis=1), out=indptr[1:])
        return indptr, ends[keep]

    def passages_of_relations(self, rows: object) -> tuple[Pointers, Rows]:
        """Return the passages that state these relations as (indptr, passage rows)."""
        return self.relation_passages.gather(_checked(rows, self.n_relations, "relation"))

    def relations_of_passages(self, rows: object) -> tuple[Pointers, Rows]:
        """Return the relations that these passages state as (indptr, relation rows)."""
        return self.passage_relations.gather(_checked(rows, self.n_passages, "passage"))

    def is_visible(self, rows: object) -> Mask:
        """Return which of these relations at least one passage holds."""
        return self.relation_passages.lengths(rows) > 0

    # --- whole arrays, computed when first asked for ---

    @cached_property
    def visible(self) -> Mask:
        """Which relations at least one passage holds, shape (n_relations,)."""
        return self.relation_passages.all_lengths() > 0

    @cached_property
    def entity_degree(self) -> Rows:
        """Number of visible relations of each entity, shape (n_entities,)."""
        return self.entity_relations.all_lengths()

    @cached_property
    def relation_frequency(self) -> Rows:
        """Number of passages of each relation, shape (n_relations,)."""
        return self.relation_passages.all_lengths()

    @cached_property
    def passage_degree(self) -> Rows:
        """Number of relations of each passage, shape (n_passages,)."""
        return self.passage_relations.all_lengths()

    def entity_frequency(self, rows: object) -> Rows:
        """Return df: the number of distinct passages that name each of these entities."""
        indptr, relations = self.relations_of_entities(rows)
        counts, passages = self.passages_of_relations(relations)
        owners = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        left, _ = unique_pairs(np.repeat(owners, np.diff(counts)).astype(np.int32), passages)
        return np.bincount(left, minlength=len(indptr) - 1).astype(np.int32)

    @cached_property
    def entity_relation_matrix(self) -> sp.csr_array:
        """H, shape (n_entities, n_relations), float32 ones."""
        return _matrix(self.entity_relations, self.n_relations)

    @cached_property
    def relation_passage_matrix(self) -> sp.csr_array:
        """Shape (n_relations, n_passages), float32 ones."""
        return _matrix(self.relation_passages, self.n_passages)

    @cached_property
    def passage_relation_matrix(self) -> sp.csr_array:
        """Shape (n_passages, n_relations), float32 ones."""
        return _matrix(self.passage_relations, self.n_relations)

    # --- change ---

    def with_changes(
        self,
        *,
        n_entities: int | None = None,
        subjects: object = (),
        objects: object = (),
        n_passages: int | None = None,
        passages: object = (),
        relations: object = (),
        removed: object = (),
        relation_ranks: Callable[[Rows], Rows] | None = None,
    ) -> Incidence:
        """Return a graph with rows appended and passages emptied; the base is shared.

        Parameters
        ----------
        n_entities, n_passages
            Numbers of rows from now on, not less than before. Default: as before.
        subjects, objects
            Entity rows of the relations that are appended.
        passages, relations
            Rows of new pairs "this passage states this relation".
        removed
            Passage rows whose relations are taken away; before the pairs are added.
        relation_ranks
            See the class. Default: as before.

        Examples
        --------
        >>> graph = Incidence.build(2, [0], [1], passages=[0], relations=[0], n_passages=1)
        >>> graph.with_changes(removed=[0]).relations_of_entities([0])[1]
        array([], dtype=int32)
        """
        ends = np.concatenate([self.subjects, row_array(subjects)])
        others = np.concatenate([self.objects, row_array(objects)])
        passages, relations = row_array(passages), row_array(relations)
        removed = distinct(row_array(removed))
        lost = distinct(self.relations_of_passages(removed)[1])
        relation_passages = self.relation_passages.updated(
            len(ends), add=(relations, passages), touched=lost, drop=removed
        )
        touched = distinct(lost, relations)
        before = self.relation_passages.lengths(touched) > 0
        after = relation_passages.lengths(touched) > 0
        gone, come = touched[before & ~after], touched[after & ~before]
        return Incidence(
            ends,
            others,
            self.entity_relations.updated(
                self.n_entities if n_entities is None else n_entities,
                add=(np.concatenate([ends[come], others[come]]), np.concatenate([come, come])),
                touched=np.concatenate([ends[gone], others[gone]]),
                drop=gone,
            ),
            relation_passages,
            self.passage_relations.updated(
                self.n_passages if n_passages is None else n_passages,
                add=(passages, relations),
                touched=removed,
            ),
            relation_ranks or self.relation_ranks,
        )

    # --- expansion ---

    def permitted_relations(self, permitted_passages: Mask) -> Mask:
        """Return the mask of relations that at least one permitted passage holds.

        Parameters
        ----------
        permitted_passages
            Mask over passages, shape (n_passages,).
        """
        rows = np.flatnonzero(permitted_passages).astype(np.int32)
        mask = np.zeros(self.n_relations, dtype=np.bool_)
        mask[self.relations_of_passages(rows)[1]] = True
        return mask

    def expand(
        self,
        *,
        entities: object = (),
        relations: object = (),
        degree: int = 1,
        permitted: Mask | None = None,
        max_per_entity: int | None = None,
        max_relations: int | None = None,
        relevance: Relevance | None = None,
    ) -> Expansion:
        """Return the relations within `degree` hops of the seeds.

        With H the entity x relation incidence, entity seeds reach the non-zeros of
        ``(H Ht)^degree H``, relation seeds those of ``(Ht H)^degree``. The products are never
        built: each entity and relation is visited once.

        Parameters
        ----------
        entities, relations
            Rows of the seeds; a seed that is invisible or not permitted reaches nothing.
        degree
            Hops, 0 or more; with 0 the relations of the entities, and the relations themselves.
        permitted
            Mask over relations, shape (n_relations,); others are neither returned nor crossed.
        max_per_entity
            At an entity with more relations than this only the most relevant are followed.
        max_relations
            Only so many of the relations reached are returned: the most relevant.
        relevance
            What the caps keep by, higher is better, ties by id. Default: the total keeps the
            nearest degrees.

        Raises
        ------
        GraphRAGValueError, GraphRAGTypeError
            If a seed, a number or the length of an array is out of range or no number.

        Examples
        --------
        >>> graph = Incidence.build(3, [0, 1], [1, 2], passages=[0, 0], relations=[0, 1],
        ...                         n_passages=1)
        >>> found = graph.expand(relations=[0], degree=1, max_per_entity=1,
        ...                      relevance=np.array([0.1, 0.9]))
        >>> found.relations, found.degrees, found.cut_at_entities
        (array([0, 1], dtype=int32), array([0, 1], dtype=int32), 1)
        """
        degree = _check_number(degree, "degree", 0)
        if max_per_entity is not None:
            _check_number(max_per_entity, "max_per_entity", 1)
        if max_relations is not None:
            _check_number(max_relations, "max_relations", 1)
        for mask, name in ((permitted, "permitted"), (relevance, "relevance")):
            if mask is not None and not callable(mask) and mask.shape != (self.n_relations,):
                raise GraphRAGValueError(
                    f"{name} has shape {mask.shape}, not ({self.n_relations},): "
                    "give one value for each relation of the graph"
                )
        walk = Walk(self, permitted, max_per_entity, relevance)
        walk.reach(distinct(_checked(relations, self.n_relations, "relation")), 0)
        walk.follow(distinct(_checked(entities, self.n_entities, "entity")), 0)
        for step in range(1, degree + 1):
            if not walk.advance(step):
                break
        return walk.result(max_relations)


def _matrix(rows: Adjacency, n_columns: int) -> sp.csr_array:
    merged = rows.merged()
    ones = np.ones(len(merged.indices), dtype=np.float32)
    return sp.csr_array((ones, merged.indices, merged.indptr), shape=(rows.n_rows, n_columns))


def _check_rows(rows: Rows, size: int, kind: str) -> None:
    if len(rows) and not (rows.min() >= 0 and rows.max() < size):
        bad = rows[(rows < 0) | (rows >= size)][0]
        raise GraphRAGValueError(
            f"{kind} row {bad} is not one of the {size} rows of this graph; "
            "take rows from the same snapshot and leave out -1, which stands for an unknown id"
        )


def _checked(rows: object, size: int, kind: str) -> Rows:
    array = row_array(rows)
    _check_rows(array, size, kind)
    return array


def _check_number(value: int, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise GraphRAGTypeError(f"{name} is a whole number, got {value!r}")
    if value < least:
        raise GraphRAGValueError(f"{name} is {value}, the least is {least}; raise it")
    return int(value)
