"""Who answers a search for connections: the matrices of a snapshot, or any store.

Both speak of entities as rows, so that there is one search and one rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence

import numpy as np

from llama_index_graph_rag.graph.connect import connect
from llama_index_graph_rag.graph.connections import (
    Answer,
    Connections,
    ConnectLimits,
    Edges,
    LinksWanted,
    NeighborsFound,
    NeighborsWanted,
    Rows,
    Wanted,
)
from llama_index_graph_rag.graph.link_matrix import link_matrix
from llama_index_graph_rag.graph.snapshot import GraphSnapshot
from llama_index_graph_rag.steps import Process, Step, perform
from llama_index_graph_rag.stores.base import EntityRef, GraphReader, Link, Neighbor


class GraphWalk(ABC):
    """The graph as one search sees it."""

    size = 0
    """One more than the largest row, where that is known beforehand."""

    @abstractmethod
    def rows(self, refs: Sequence[EntityRef]) -> list[int]:
        """Return the row of each entity."""

    @abstractmethod
    def refs(self, rows: Sequence[int]) -> list[EntityRef]:
        """Return the entity of each row."""

    @abstractmethod
    def order(self, rows: Rows) -> Rows:
        """Return numbers by which these rows are in the order of names, ties by id."""

    @abstractmethod
    def answer(self, wanted: Wanted) -> Process[Answer]:
        """Return what the search asks for."""


def search(
    walk: GraphWalk, sides: Sequence[Sequence[EntityRef]], limits: ConnectLimits
) -> Process[Connections]:
    """Search the shortest paths between each two sides."""
    rows = [walk.rows(side) for side in sides]
    process = connect(rows, walk.order, limits, size=walk.size)
    try:
        wanted = next(process)
        while True:
            wanted = process.send((yield from walk.answer(wanted)))
    except StopIteration as stop:
        found: Connections = stop.value
        return found


class SnapshotWalk(GraphWalk):
    """Walks the matrices of a snapshot, without any call to the store."""

    def __init__(self, graph: GraphSnapshot) -> None:
        self._graph = graph
        self._matrix = link_matrix(graph)
        self.size = graph.n_entities

    def rows(self, refs: Sequence[EntityRef]) -> list[int]:
        """Return the row of each entity, all of which the snapshot has."""
        rows: list[int] = self._graph.entity_rows([ref.id for ref in refs]).tolist()
        return rows

    def refs(self, rows: Sequence[int]) -> list[EntityRef]:
        """Return the entity of each row."""
        ids = self._graph.entity_ids(np.array(rows, dtype=np.int32))
        return [EntityRef(id_, self._graph.entity_names[row]) for id_, row in zip(ids, rows)]

    def order(self, rows: Rows) -> Rows:
        """Return the places of these rows in the order of names."""
        return self._matrix.order(rows)

    def answer(self, wanted: Wanted) -> Process[Answer]:
        """Return what the search asks for, at once."""
        yield from ()
        return self._matrix.answer(wanted)


class ReaderWalk(GraphWalk):
    """Walks any store by its `neighbors` and `links`; each entity is expanded once.

    Parameters
    ----------
    reader
        The store.
    calls
        Counts the calls: ``reader.neighbors``, ``reader.links``.
    """

    def __init__(self, reader: GraphReader, calls: Counter[str]) -> None:
        self._reader = reader
        self._calls = calls
        self._rows: dict[str, int] = {}
        self._refs: list[EntityRef] = []
        self._neighbors: dict[int, tuple[list[int], list[int]]] = {}

    def rows(self, refs: Sequence[EntityRef]) -> list[int]:
        """Return the row of each entity; one not met before gets the next."""
        rows = []
        for ref in refs:
            row = self._rows.setdefault(ref.id, len(self._refs))
            if row == len(self._refs):
                self._refs.append(ref)
            rows.append(row)
        return rows

    def refs(self, rows: Sequence[int]) -> list[EntityRef]:
        """Return the entity of each row."""
        return [self._refs[row] for row in rows]

    def order(self, rows: Rows) -> Rows:
        """Return the places of these rows in the order of their names."""
        keys = [(self._refs[row].name, self._refs[row].id) for row in rows.tolist()]
        places = np.empty(len(rows), dtype=np.int32)
        places[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(rows))
        return places

    def answer(self, wanted: Wanted) -> Process[Answer]:
        """Ask the store."""
        if isinstance(wanted, LinksWanted):
            return (yield from self._links(wanted))
        yield from self._expand(wanted)
        return [self._found(frontier, wanted.limit) for frontier in wanted.frontiers]

    def _expand(self, wanted: NeighborsWanted) -> Process[None]:
        rows = dict.fromkeys(row for frontier in wanted.frontiers for row in frontier.tolist())
        new = [row for row in rows if row not in self._neighbors]
        if not new:
            return
        ids, limit = [self._refs[row].id for row in new], wanted.limit
        self._calls["reader.neighbors"] += 1
        found = yield from perform(
            Step(
                run=lambda: self._reader.neighbors(ids, limit_per_entity=limit),
                arun=lambda: self._reader.aneighbors(ids, limit_per_entity=limit),
            )
        )
        for row, id_ in zip(new, ids):
            neighbors: list[Neighbor] = found.get(id_, [])
            self._neighbors[row] = (
                self.rows([neighbor.entity for neighbor in neighbors]),
                [neighbor.count for neighbor in neighbors],
            )

    def _found(self, frontier: Rows, limit: int) -> NeighborsFound:
        found = [self._neighbors[row] for row in frontier.tolist()]
        lengths = [len(targets) for targets, _ in found]
        edges = Edges(
            np.repeat(frontier, lengths),
            np.array([row for targets, _ in found for row in targets], dtype=np.int32),
            np.array([count for _, counts in found for count in counts], dtype=np.int32),
        )
        return NeighborsFound(edges, sum(length >= limit for length in lengths))

    def _links(self, wanted: LinksWanted) -> Process[list[Edges]]:
        blocks, limit = wanted.blocks, wanted.limit
        together = sum(len(rows) for block in blocks for rows in block)
        if len(blocks) > 1 and together <= limit:
            # One call for all, as long as links within one side cannot crowd out the others.
            left, right = (np.unique(np.concatenate(rows)) for rows in zip(*blocks))
            links = yield from self._call(left, right, limit)
            if len(links) < limit:
                return [self._between(links, *block) for block in blocks]
        answer = []
        for left, right in blocks:
            links = yield from self._call(left, right, limit)
            answer.append(self._between(links, left, right))
        return answer

    def _call(self, left: Rows, right: Rows, limit: int) -> Process[list[Link]]:
        left_ids = [self._refs[row].id for row in left.tolist()]
        right_ids = [self._refs[row].id for row in right.tolist()]
        self._calls["reader.links"] += 1
        return (
            yield from perform(
                Step(
                    run=lambda: self._reader.links(left_ids, right_ids, limit=limit),
                    arun=lambda: self._reader.alinks(left_ids, right_ids, limit=limit),
                )
            )
        )

    def _between(self, links: Sequence[Link], left: Rows, right: Rows) -> Edges:
        sides = set(left.tolist()), set(right.tolist())
        found: dict[tuple[int, int], int] = {}
        for link in links:
            one, other = self._rows[link.left_id], self._rows[link.right_id]
            for ends in ((one, other), (other, one)):
                if ends[0] in sides[0] and ends[1] in sides[1]:
                    found[ends] = link.count
        pairs = np.array(list(found), dtype=np.int32).reshape(-1, 2)
        return Edges(pairs[:, 0], pairs[:, 1], np.array(list(found.values()), dtype=np.int32))
