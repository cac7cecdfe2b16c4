"""Incidence of entities, relations and passages, and expansion over it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError
from llama_index_graph_rag.graph.adjacency import (
    Adjacency,
    Pointers,
    Rows,
    row_array,
    unique_pairs,
)

Mask = NDArray[np.bool_]
Relevance = NDArray[np.floating] | Callable[[Rows], NDArray[np.floating]]
"""One number a relation of the graph, or a function that gives it for the rows it is asked for."""


@dataclass(frozen=True, slots=True)
class Expansion:
    """Relations reached from seeds.

    Attributes
    ----------
    relations
        Rows of the relations, nearest degree first, then by id.
    degrees
        The degree at which each was reached, same shape.
    capped_entities
        Entities that had more relations than `max_per_entity`.
    cut_at_entities
        Relations not followed there (each may have been reached another way).
    cut_by_total
        Relations reached and then left out by `max_relations`.
    """

    relations: Rows
    degrees: Rows
    capped_entities: int = 0
    cut_at_entities: int = 0
    cut_by_total: int = 0


@dataclass(frozen=True)
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
        Place of each relation in the order of ids, by which ties are broken; None if rows are
        in that order.

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
    relation_ranks: Rows | None = None

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
        parts = (self.entity_relations, self.relation_passages, self.passage_relations)
        return sum(part.n_over for part in parts)

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
        n_entities: int,
        subjects: Rows,
        objects: Rows,
        n_passages: int,
        pairs: tuple[Rows, Rows],
        removed: Rows,
        relation_ranks: Rows | None = None,
    ) -> Incidence:
        """Return a graph with rows appended and passages emptied; the base is shared.

        Parameters
        ----------
        n_entities, n_passages
            Numbers of rows from now on, not less than before.
        subjects, objects
            Entity rows of the relations that are appended.
        pairs
            New (passage rows, relation rows); relations of any row, old or appended.
        removed
            Passage rows whose relations are taken away, ascending.
        relation_ranks
            See the class.
        """
        subjects = np.concatenate([self.subjects, subjects]) if len(subjects) else self.subjects
        objects = np.concatenate([self.objects, objects]) if len(objects) else self.objects
        n_relations = len(subjects)
        lost = np.unique(self.relations_of_passages(removed)[1])
        touched = np.union1d(lost, pairs[1]).astype(np.int32)
        relation_passages = self.relation_passages.updated(
            n_relations, add=(pairs[1], pairs[0]), touched=lost, drop=removed
        )
        before = self.relation_passages.lengths(touched) > 0
        after = relation_passages.lengths(touched) > 0
        gone, come = touched[before & ~after], touched[after & ~before]
        return Incidence(
            subjects,
            objects,
            self.entity_relations.updated(
                n_entities,
                add=(
                    np.concatenate([subjects[come], objects[come]]),
                    np.concatenate([come, come]),
                ),
                touched=np.concatenate([subjects[gone], objects[gone]]),
                drop=gone,
            ),
            relation_passages,
            self.passage_relations.updated(n_passages, add=pairs, touched=removed),
            relation_ranks,
        )

    def merged(self) -> Incidence:
        """Return the same graph with the delta merged into the base matrices."""
        return replace(
            self,
            entity_relations=self.entity_relations.merged(),
            relation_passages=self.relation_passages.merged(),
            passage_relations=self.passage_relations.merged(),
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
        walk = _Walk(self, permitted, max_per_entity, relevance)
        walk.reach(np.unique(_checked(relations, self.n_relations, "relation")), 0)
        walk.follow(np.unique(_checked(entities, self.n_entities, "entity")), 0)
        for step in range(1, degree + 1):
            if not walk.advance(step):
                break
        return walk.result(max_relations)


class _Walk:
    """The state of one expansion: what was visited, and the relations of the last degree."""

    def __init__(
        self,
        graph: Incidence,
        permitted: Mask | None,
        max_per_entity: int | None,
        relevance: Relevance | None,
    ) -> None:
        self.graph = graph
        self.permitted = permitted
        self.max_per_entity = max_per_entity
        self.relevance = relevance
        self.seen_relations = np.zeros(graph.n_relations, dtype=np.bool_)
        self.seen_entities = np.zeros(graph.n_entities, dtype=np.bool_)
        self.levels: list[tuple[int, Rows]] = []
        self.capped = 0
        self.cut = 0

    def reach(self, relations: Rows, step: int) -> None:
        """Take in those of `relations` that are new."""
        new = relations[~self.seen_relations[relations]]
        if self.permitted is not None:
            new = new[self.permitted[new]]
        new = new[self.graph.is_visible(new)]
        self.seen_relations[new] = True
        self.levels.append((step, new))

    def follow(self, entities: Rows, step: int) -> None:
        """Take in the relations of those of `entities` that are new."""
        new = entities[~self.seen_entities[entities]]
        self.seen_entities[new] = True
        indptr, relations = self.graph.relations_of_entities(new)
        lengths = np.diff(indptr)
        if self.permitted is not None:
            keep = self.permitted[relations]
            owners = np.repeat(np.arange(len(new)), lengths)[keep]
            relations, lengths = relations[keep], np.bincount(owners, minlength=len(new))
        if self.max_per_entity is not None:
            relations = self._cap(relations, lengths, self.max_per_entity)
        self.reach(_distinct(relations, self.graph.n_relations), step)

    def _cap(self, relations: Rows, lengths: Pointers, limit: int) -> Rows:
        over = lengths > limit
        if not over.any():
            return relations
        self.capped += int(over.sum())
        self.cut += int((lengths[over] - limit).sum())
        crowded = np.repeat(over, lengths)
        crowd = relations[crowded]
        rows, inverse = np.unique(crowd, return_inverse=True)
        places = np.empty(len(rows), dtype=np.int64)
        places[self._best_first(rows, self._relevance_of(rows))] = np.arange(len(rows))
        groups = np.repeat(np.arange(int(over.sum())), lengths[over])
        order = np.argsort(groups * len(rows) + places[inverse])
        starts = np.cumsum(lengths[over]) - lengths[over]
        within = np.arange(len(crowd)) - np.repeat(starts, lengths[over])
        return np.concatenate([relations[~crowded], crowd[order[within < limit]]])

    def _relevance_of(self, rows: Rows) -> NDArray[np.floating] | None:
        if self.relevance is None:
            return None
        if not callable(self.relevance):
            return self.relevance[rows]
        values = np.asarray(self.relevance(rows))
        if values.shape != rows.shape:
            raise GraphRAGValueError(
                f"relevance returned shape {values.shape} for {len(rows)} rows: "
                "return one number a row"
            )
        return values

    def _best_first(self, rows: Rows, values: NDArray[np.floating] | None) -> NDArray[np.intp]:
        ranks = self.graph.relation_ranks
        ties = rows if ranks is None else ranks[rows]
        return np.argsort(ties) if values is None else np.lexsort((ties, -values))

    def advance(self, step: int) -> bool:
        """Walk one hop on from the relations of the last step; return whether any are new."""
        last = [rows for at, rows in self.levels if at == step - 1]
        frontier = np.concatenate(last)
        _, entities = self.graph.entities_of_relations(frontier)
        self.follow(_distinct(entities, self.graph.n_entities), step)
        return len(self.levels[-1][1]) > 0

    def result(self, max_relations: int | None) -> Expansion:
        """Return what was reached, at most `max_relations`."""
        rows = np.concatenate([rows for _, rows in self.levels])
        degrees = np.concatenate([np.full(len(rows), at, np.int32) for at, rows in self.levels])
        total = len(rows)
        if max_relations is not None and total > max_relations:
            values = self._relevance_of(rows)
            kept = self._best_first(rows, -degrees if values is None else values)[:max_relations]
            rows, degrees = rows[kept], degrees[kept]
        order = self._best_first(rows, -degrees)
        return Expansion(rows[order], degrees[order], self.capped, self.cut, total - len(rows))


def _distinct(rows: Rows, size: int) -> Rows:
    # A mask beats sorting once the rows are a good part of all there are.
    if len(rows) * 8 < size:
        return np.unique(rows)
    mask = np.zeros(size, dtype=np.bool_)
    mask[rows] = True
    return np.flatnonzero(mask).astype(np.int32)


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
