"""Expansion: the relations within so many hops of some seeds, by walking the frontier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.graph.adjacency import Mask, Pointers, Rows, distinct

if TYPE_CHECKING:
    from llama_index_graph_rag.graph.incidence import Incidence

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


class Walk:
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
        self.reach(_distinct_of(relations, self.graph.n_relations), step)

    def _cap(self, relations: Rows, lengths: Pointers, limit: int) -> Rows:
        over = lengths > limit
        if not over.any():
            return relations
        self.capped += int(over.sum())
        self.cut += int((lengths[over] - limit).sum())
        crowded = np.repeat(over, lengths)
        crowd = relations[crowded]
        rows = _distinct_of(crowd, self.graph.n_relations)
        places = np.empty(len(rows), dtype=np.int64)
        places[self._best_first(rows, self._relevance_of(rows))] = np.arange(len(rows))
        groups = np.repeat(np.arange(int(over.sum())), lengths[over])
        order = np.argsort(groups * len(rows) + places[np.searchsorted(rows, crowd)])
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
        ties = rows if ranks is None else ranks(rows)
        return np.argsort(ties) if values is None else np.lexsort((ties, -values))

    def advance(self, step: int) -> bool:
        """Walk one hop on from the relations of the last step; return whether any are new."""
        last = [rows for at, rows in self.levels if at == step - 1]
        frontier = np.concatenate(last)
        _, entities = self.graph.entities_of_relations(frontier)
        self.follow(_distinct_of(entities, self.graph.n_entities), step)
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


def _distinct_of(rows: Rows, size: int) -> Rows:
    # A mask beats sorting once the rows are a good part of all there are.
    if len(rows) * 8 < size:
        return distinct(rows)
    mask = np.zeros(size, dtype=np.bool_)
    mask[rows] = True
    return np.flatnonzero(mask).astype(np.int32)
