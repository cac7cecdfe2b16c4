"""Two-sided search for the shortest paths between entities.

The search is pure: it *yields* what it wants to know of the graph and is sent the answer, so that
one implementation serves the matrices in memory and every store, sync and async. Entities are
rows: numbers that whoever answers gives out, from 0 and without large gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.graph.connections import (
    Connection,
    Connections,
    ConnectLimits,
    Edges,
    LinksWanted,
    NeighborsFound,
    NeighborsWanted,
    Order,
    Rows,
    Search,
    Stage,
    Unconnected,
)


def connect(
    sides: Sequence[Sequence[int]],
    order: Order,
    limits: ConnectLimits = ConnectLimits(),  # noqa: B008
    *,
    size: int = 0,
) -> Search:
    """Search the shortest paths between each two sides: direct links, then rounds of growth.

    In each round every side that still misses another grows by one step, all in one request; then
    two sides that saw the same entity are connected through it, and all others are checked for
    direct links between what they saw, in one request. A pair stops at the first round that
    connects it. With no limit reached the result holds exactly the shortest paths.

    Parameters
    ----------
    sides
        The rows each side starts from: one entity, or several of one name. No row twice.
    order
        The order by name, for whatever has to be cut.
    limits
        What bounds the search.
    size
        One more than the largest row, where that is known.

    Yields
    ------
    Wanted
        NeighborsWanted or LinksWanted.

    Returns
    -------
    Connections
        Paths as layers of edges, the pairs without any, and the record of the search.

    Raises
    ------
    GraphRAGValueError
        If a side is empty or a row is given twice.

    Examples
    --------
    The path 0 - 1 - 2, answered by hand:

    >>> row = lambda *values: np.array(values, dtype=np.int32)
    >>> search = connect([[0], [2]], lambda rows: rows)
    >>> next(search).blocks
    ((array([0], dtype=int32), array([2], dtype=int32)),)
    >>> search.send([Edges(row(), row(), row())]).frontiers
    (array([0], dtype=int32), array([2], dtype=int32))
    >>> try:
    ...     search.send([NeighborsFound(Edges(row(0), row(1), row(1)), 0),
    ...                  NeighborsFound(Edges(row(2), row(1), row(1)), 0)])
    ... except StopIteration as stop:
    ...     print(stop.value.found[0].length)
    2
    """
    flat = [row for side in sides for row in side]
    if not all(len(side) for side in sides) or len(set(flat)) != len(flat):
        raise GraphRAGValueError(
            f"the sides {[list(side) for side in sides]} hold an empty one or a row twice; "
            "give each entity to one side"
        )
    grown = [
        _Side(number, np.array(side, dtype=np.int32), size) for number, side in enumerate(sides)
    ]
    pairs = list(combinations(range(len(grown)), 2))
    found: dict[tuple[int, int], Connection] = {}
    lost: dict[tuple[int, int], Unconnected] = {}
    full_checks = 0
    for round_ in range(limits.rounds + 1):
        if round_:
            growing = [
                side
                for side in grown
                if len(side.frontier) and any(side.number in pair for pair in pairs)
            ]
            answer = yield NeighborsWanted(
                tuple(side.frontier for side in growing), limits.neighbors
            )
            for side, neighbors in zip(growing, answer):
                assert isinstance(neighbors, NeighborsFound)
                side.grow(neighbors, round_, order, limits)
        apart = []
        for i, j in pairs:
            meets = _meeting(grown[i], grown[j])
            if len(meets):
                found[i, j] = _through(grown[i], grown[j], meets)
            elif grown[i].ended or grown[j].ended:
                lost[i, j] = Unconnected(i, j, round_, True)
            else:
                apart.append((i, j))
        pairs = []
        blocks = _blocks(apart)
        if blocks:
            answer = yield LinksWanted(
                tuple(
                    (grown[i].rows, np.concatenate([grown[j].rows for j in others]))
                    for i, others in blocks.items()
                ),
                limits.links,
            )
            for (i, others), links in zip(blocks.items(), answer):
                assert isinstance(links, Edges)
                full_checks += len(links.sources) >= limits.links
                for j in others:
                    connection = _across(grown[i], grown[j], links)
                    if connection:
                        found[i, j] = connection
                    elif round_ == limits.rounds or _is_stuck(grown[i], grown[j]):
                        lost[i, j] = Unconnected(i, j, round_, False)
                    else:
                        pairs.append((i, j))
        if not pairs:
            break
    return Connections(
        tuple(found[pair] for pair in sorted(found)),
        tuple(lost[pair] for pair in sorted(lost)),
        tuple(stage for side in grown for stage in side.stages),
        tuple(side.n_seen for side in grown),
        full_checks,
    )


def _blocks(pairs: Sequence[tuple[int, int]]) -> dict[int, list[int]]:
    # One block for each left side: two sides that are already connected never share a block, so
    # that their own links cannot fill it.
    blocks: dict[int, list[int]] = {}
    for i, j in pairs:
        blocks.setdefault(i, []).append(j)
    return blocks


@dataclass(slots=True)
class _Side:
    """What one side has seen: the level of each row (-1 where unseen), and the edges by level."""

    number: int
    starts: Rows
    size: int
    level: NDArray[np.int8] = field(init=False)
    seen: list[Rows] = field(init=False)
    steps: list[Edges] = field(default_factory=list)
    frontier: Rows = field(init=False)
    stages: list[Stage] = field(default_factory=list)
    unexpanded: int = 0

    def __post_init__(self) -> None:
        self.level = np.full(self.size, -1, dtype=np.int8)
        self.fit(self.starts)
        self.level[self.starts] = 0
        self.seen = [self.starts]
        self.frontier = self.starts

    @property
    def rows(self) -> Rows:
        """All rows seen."""
        return np.concatenate(self.seen)

    @property
    def n_seen(self) -> int:
        """How many rows were seen."""
        return sum(map(len, self.seen))

    @property
    def ended(self) -> bool:
        """Whether this side saw all that can be reached from it, with nothing cut."""
        return not len(self.frontier) and not any(stage.cut for stage in self.stages)

    def fit(self, rows: Rows) -> None:
        """Make room for the levels of these rows."""
        if self.size:
            return
        top = int(rows.max(initial=-1))
        if top >= len(self.level):
            more = np.full(max(top + 1, 2 * len(self.level)) - len(self.level), -1, dtype=np.int8)
            self.level = np.concatenate([self.level, more])

    def level_of(self, rows: Rows) -> NDArray[np.int8]:
        """Return the level of each of these rows, -1 where it was not seen."""
        self.fit(rows)
        return self.level[rows]

    def grow(
        self, neighbors: NeighborsFound, round_: int, order: Order, limits: ConnectLimits
    ) -> None:
        """Take in the neighbours of the frontier."""
        edges = neighbors.edges
        edges = edges.where(self.level_of(edges.targets) < 0)
        new, dropped = _unique(edges.targets, len(self.level)), 0
        frontier = new
        if len(new) > min(limits.new_nodes, limits.frontier):
            new = _best_linked(edges, new, order)
            dropped = max(0, len(new) - limits.new_nodes)
            new = new[: limits.new_nodes]
            frontier = new[: limits.frontier]
        self.level[new] = round_
        if dropped:
            edges = edges.where(self.level[edges.targets] == round_)
        unexpanded = len(new) - len(frontier)
        self.stages.append(
            Stage(
                self.number,
                round_,
                len(self.frontier),
                neighbors.at_limit,
                len(new),
                dropped,
                unexpanded,
            )
        )
        self.steps.append(edges)
        self.seen.append(new)
        self.frontier = frontier


def _unique(rows: Rows, size: int) -> Rows:
    """Return each row once, in linear time."""
    if len(rows) < 2:
        return rows
    place = np.empty(size, dtype=np.int32)
    numbers = np.arange(len(rows), dtype=np.int32)
    place[rows] = numbers
    unique: Rows = rows[place[rows] == numbers]
    return unique


def _best_linked(edges: Edges, new: Rows, order: Order) -> Rows:
    """Return the new rows, those with the most relations to the frontier first, then by name."""
    place = np.empty(int(new.max()) + 1, dtype=np.int64)
    place[new] = np.arange(len(new))
    links = np.bincount(place[edges.targets], weights=edges.counts, minlength=len(new))
    ordered: Rows = new[np.lexsort((order(new), -links))]
    return ordered


def _is_stuck(left: _Side, right: _Side) -> bool:
    return not len(left.frontier) and not len(right.frontier)


def _meeting(left: _Side, right: _Side) -> Rows:
    """Return the rows seen from both sides that lie on the shortest way between them."""
    new_left, new_right = left.seen[-1], right.seen[-1]
    both = np.concatenate(
        [new_left[right.level_of(new_left) >= 0], new_right[left.level_of(new_right) >= 0]]
    )
    if not len(both):
        return both
    lengths = left.level[both] + right.level[both]
    nearest: Rows = both[lengths == lengths.min()]
    return nearest


def _through(left: _Side, right: _Side, meets: Rows) -> Connection:
    length = int(left.level[meets[0]] + right.level[meets[0]])
    return _connection(left, right, length, meets, meets, [])


def _across(left: _Side, right: _Side, links: Edges) -> Connection | None:
    to = right.level_of(links.targets)
    links = links.where(to >= 0)
    if not len(links.sources):
        return None
    lengths = left.level[links.sources] + right.level[links.targets]
    length = int(lengths.min())
    links = links.where(lengths == length)
    return _connection(left, right, length + 1, links.sources, links.targets, [links])


def _connection(
    left: _Side, right: _Side, length: int, ends: Rows, starts: Rows, links: list[Edges]
) -> Connection:
    layers: list[list[Edges]] = [[] for _ in range(length)]
    for level, edges in _back(left, ends):
        layers[level - 1].append(edges)
    for level, edges in _back(right, starts):
        layers[length - level].append(edges.reverse)
    if links:
        levels = left.level[links[0].sources]
        for level in np.unique(levels):
            layers[level].append(links[0].where(levels == level))
    return Connection(left.number, right.number, tuple(map(Edges.join, layers)))


def _back(side: _Side, ends: Rows) -> list[tuple[int, Edges]]:
    """Return, by level, the edges by which `side` reached these rows."""
    wanted = np.zeros(len(side.level), dtype=np.bool_)
    wanted[ends] = True
    found = []
    for level in range(int(side.level[ends].max()), 0, -1):
        edges = side.steps[level - 1]
        edges = edges.where(wanted[edges.targets])
        wanted[edges.sources] = True
        found.append((level, edges))
    return found
