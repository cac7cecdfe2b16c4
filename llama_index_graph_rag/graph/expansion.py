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
"""One number a relation of the graph, or a function that gives it for rows (some asked twice)."""


@dataclass(frozen=True, eq=False, slots=True)
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
        ranks, values = self._ranks_of(crowd), self._relevance_of(crowd)
        kept = [relations[~crowded]]
        start = 0
        for length in lengths[over].tolist():
            group = slice(start, start + length)
            best = _best(ranks[group], None if values is None else values[group], limit)
            kept.append(crowd[group][best])
            start += length
        return np.concatenate(kept)

    def _ranks_of(self, rows: Rows) -> Rows:
        ranks = self.graph.relation_ranks
        return rows if ranks is None else ranks(rows)

    def _relevance_of(self, rows: Rows) -> NDArray[np.floating] | None:
        if self.relevance is None:
            return None
        values = self.relevance(rows) if callable(self.relevance) else self.relevance[rows]
        if np.shape(values) != rows.shape:
            raise GraphRAGValueError(
                f"relevance returned shape {np.shape(values)} for {len(rows)} rows: "
                "return one number a row"
            )
        return np.where(np.isnan(values), -np.inf, values)

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
            kept = _best(
                self._ranks_of(rows), -degrees if values is None else values, max_relations
            )
            rows, degrees = rows[kept], degrees[kept]
        order = np.argsort((degrees.astype(np.int64) << 32) | self._ranks_of(rows))
        return Expansion(rows[order], degrees[order], self.capped, self.cut, total - len(rows))


def _best(ranks: Rows, values: NDArray[np.number] | None, limit: int) -> NDArray[np.intp]:
    """Return the places of the `limit` highest values, ties by rank; in no order."""
    if values is None:
        return np.argpartition(ranks, limit - 1)[:limit]
    least = np.partition(values, len(values) - limit)[len(values) - limit]
    sure, tied = np.flatnonzero(values > least), np.flatnonzero(values == least)
    return np.concatenate([sure, tied[np.argsort(ranks[tied])[: limit - len(sure)]]])


def _distinct_of(rows: Rows, size: int) -> Rows:
    # A mask beats sorting once the rows are a good part of all there are.
    if len(rows) * 8 < size:
        return distinct(rows)
    mask = np.zeros(size, dtype=np.bool_)
    mask[rows] = True
    return np.flatnonzero(mask).astype(np.int32)
