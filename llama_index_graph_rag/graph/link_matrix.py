"""Entities joined to entities, in memory: what a search for connections walks."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from llama_index_graph_rag.graph.connections import (
    Answer,
    Edges,
    LinksWanted,
    NeighborsFound,
    Rows,
    Wanted,
)

if TYPE_CHECKING:
    from llama_index_graph_rag.graph.snapshot import GraphSnapshot


@dataclass(frozen=True, slots=True)
class LinkMatrix:
    """Neighbours of each entity with link counts, best linked first, then by name.

    A sparse symmetric matrix (n, n) in CSR form without a diagonal: a self-loop joins nothing. It
    takes about 16 bytes a relation.

    Attributes
    ----------
    indptr, indices, counts
        Row i has the neighbours ``indices[indptr[i]:indptr[i + 1]]``, with the number of
        relations that join each to i.
    ranks, id_ranks
        Place of each entity in the order of names and in that of ids, shape (n,).

    Examples
    --------
    >>> matrix = LinkMatrix.build(3, [0, 0, 1], [1, 2, 0])
    >>> matrix.indices[:2], matrix.counts[:2]
    (array([1, 2], dtype=int32), array([2, 1], dtype=int32))
    """

    indptr: NDArray[np.int64]
    indices: Rows
    counts: Rows
    ranks: Rows
    id_ranks: Rows

    @classmethod
    def build(
        cls,
        n_entities: int,
        subjects: object,
        objects: object,
        ranks: Rows | None = None,
        id_ranks: Rows | None = None,
    ) -> LinkMatrix:
        """Build from the two ends of each relation.

        Parameters
        ----------
        n_entities
            Number of entities.
        subjects, objects
            Entity rows, one a relation, in range.
        ranks, id_ranks
            Place of each entity in the order of names, and of ids; default: that of rows.
        """
        left = np.asarray(subjects, dtype=np.int32)
        right = np.asarray(objects, dtype=np.int32)
        natural = np.arange(n_entities, dtype=np.int32)
        ranks = natural if ranks is None else ranks
        apart = left != right
        left, right = left[apart], right[apart]
        # Sorted by row, then by the rank of the neighbour; a stable sort then puts counts first.
        keys = np.concatenate(
            [
                left.astype(np.int64) * n_entities + ranks[right],
                right.astype(np.int64) * n_entities + ranks[left],
            ]
        )
        keys.sort()
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        counts = np.diff(first, append=len(keys))
        rows, columns = np.divmod(keys[first], max(n_entities, 1))
        several = int(counts.max(initial=1))
        if several > 1:
            best = np.argsort(rows * (several + 1) + (several - counts), kind="stable")
            columns, counts = columns[best], counts[best]
        by_rank = np.empty(n_entities, dtype=np.int32)
        by_rank[ranks] = natural
        return cls(
            np.searchsorted(rows, np.arange(n_entities + 1)),
            by_rank[columns],
            counts.astype(np.int32),
            ranks,
            natural if id_ranks is None else id_ranks,
        )

    @property
    def nbytes(self) -> int:
        """Memory of the arrays in bytes."""
        parts = self.indptr, self.indices, self.counts, self.ranks, self.id_ranks
        return sum(part.nbytes for part in parts)

    def order(self, rows: Rows) -> Rows:
        """Return the place of these rows in the order of names."""
        return self.ranks[rows]

    def answer(self, wanted: Wanted) -> Answer:
        """Return what a search asks for."""
        if isinstance(wanted, LinksWanted):
            return [self.links(left, right, wanted.limit) for left, right in wanted.blocks]
        return [self.neighbors(rows, wanted.limit) for rows in wanted.frontiers]

    def neighbors(self, rows: Rows, limit: int) -> NeighborsFound:
        """Return at most `limit` neighbours of each row, best linked first, then by name."""
        edges, lengths = self._gather(rows, limit)
        return NeighborsFound(edges, int((lengths == limit).sum()))

    def links(self, left: Rows, right: Rows, limit: int) -> Edges:
        """Return what joins the sides directly, at most `limit`, best linked first, then by ids."""
        swap = self._degree(right) < self._degree(left)
        if swap:
            left, right = right, left
        inside = np.zeros(len(self.ranks), dtype=np.bool_)
        inside[right] = True
        edges, _ = self._gather(left, None)
        edges = edges.where(np.flatnonzero(inside[edges.targets]))
        if swap:
            edges = edges.reverse
        if len(edges.sources) > limit:
            by_id = self.id_ranks
            best = np.lexsort((by_id[edges.targets], by_id[edges.sources], -edges.counts))
            edges = edges.where(best[:limit])
        return edges

    def _degree(self, rows: Rows) -> int:
        return int((self.indptr[rows + 1] - self.indptr[rows]).sum())

    def _gather(self, rows: Rows, limit: int | None) -> tuple[Edges, NDArray[np.int64]]:
        starts = self.indptr[rows]
        lengths = self.indptr[rows + 1] - starts
        if limit is not None:
            lengths = np.minimum(lengths, limit)
        ends = np.cumsum(lengths)
        at = np.repeat(starts - ends + lengths, lengths)
        at += np.arange(len(at))
        return Edges(np.repeat(rows, lengths), self.indices[at], self.counts[at]), lengths


def link_matrix(graph: GraphSnapshot) -> LinkMatrix:
    """Return the links of a snapshot's visible relations, made once and kept while it lives.

    Two million relations take about a second and 35 MB, and again after each change of the graph.

    Examples
    --------
    >>> from llama_index_graph_rag.graph.snapshot import GraphSnapshot
    >>> len(link_matrix(GraphSnapshot.empty()).ranks)
    0
    """
    with _lock:
        key = id(graph)
        if key not in _made:
            visible = graph.incidence.visible
            _made[key] = LinkMatrix.build(
                graph.n_entities,
                graph.subjects[visible],
                graph.objects[visible],
                _name_ranks(graph),
                graph.entity_ranks,
            )
            weakref.finalize(graph, _made.pop, key, None)
        return _made[key]


_lock = threading.Lock()
_made: dict[int, LinkMatrix] = {}


def _name_ranks(graph: GraphSnapshot) -> Rows:
    rows = np.arange(graph.n_entities, dtype=np.int32)
    named = zip(graph.entity_names, graph.entity_ids(rows), rows.tolist())
    ranks = np.empty(len(rows), dtype=np.int32)
    ranks[[row for _, _, row in sorted(named)]] = rows
    return ranks
