"""What a search for connections asks, what bounds it and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from llama_index_graph_rag.errors import GraphRAGValueError

MAX_ROUNDS = 20
"""Paths of 41 edges: what the values in pruning leave room for, and beyond all use."""

Rows = NDArray[np.int32]
Order = Callable[[Rows], NDArray[np.integer]]
"""Gives each row a number by which rows are in the order of their names (ties by id)."""


class Edges(NamedTuple):
    """Pairs of entities that relations join, and how many do; three arrays of one length."""

    sources: Rows
    targets: Rows
    counts: Rows

    def where(self, keep: NDArray[np.bool_] | NDArray[np.integer]) -> Edges:
        """Return these of the edges."""
        return Edges(self.sources[keep], self.targets[keep], self.counts[keep])

    @property
    def reverse(self) -> Edges:
        """The same edges seen from the other end."""
        return Edges(self.targets, self.sources, self.counts)

    @classmethod
    def join(cls, parts: Sequence[Edges]) -> Edges:
        """Return the edges of all parts, in order."""
        return parts[0] if len(parts) == 1 else cls(*map(np.concatenate, zip(*parts)))


class NeighborsWanted(NamedTuple):
    """Request: the neighbours of each frontier, at most `limit` a row, best linked first.

    Answered by one NeighborsFound for each frontier.
    """

    frontiers: tuple[Rows, ...]
    limit: int


class NeighborsFound(NamedTuple):
    """Answer: edges from the rows of a frontier, and how many rows gave as many as the limit."""

    edges: Edges
    at_limit: int


class LinksWanted(NamedTuple):
    """Request: what joins the two sides of each block directly, at most `limit` a block.

    Answered by one Edges for each block, from its left to its right side, best linked first.
    """

    blocks: tuple[tuple[Rows, Rows], ...]
    limit: int


@dataclass(frozen=True, slots=True)
class ConnectLimits:
    """What bounds the search.

    Attributes
    ----------
    rounds
        Rounds of growth on both sides, 0 to 20; paths have at most ``2 * rounds + 1`` edges.
    neighbors
        Neighbours that one entity contributes: the best linked, then by name.
    new_nodes
        New entities of one side in one round: the best linked to that side, then by name.
    frontier
        Of these, how many are expanded in the next round.
    links
        Hits of one check whether two sides are joined directly.

    Raises
    ------
    GraphRAGValueError
        If a limit is out of range.

    Examples
    --------
    >>> ConnectLimits(frontier=100).rounds
    3
    """

    rounds: int = 3
    neighbors: int = 100
    new_nodes: int = 10_000
    frontier: int = 10_000
    links: int = 10_000

    def __post_init__(self) -> None:
        for name in ("rounds", "neighbors", "new_nodes", "frontier", "links"):
            value, least = getattr(self, name), 0 if name == "rounds" else 1
            if value < least:
                raise GraphRAGValueError(f"{name} is {value}; give {least} or more")
        if self.rounds > MAX_ROUNDS:
            raise GraphRAGValueError(f"rounds is {self.rounds}; give {MAX_ROUNDS} at most")


class Stage(NamedTuple):
    """One side in one round: what was expanded, found and cut.

    `at_limit` counts the expanded entities that gave as many neighbours as they may, so that more
    may have been left out there; `dropped` the new entities over the limit of a stage; and
    `unexpanded` those of the new entities that the next round may not expand.
    """

    side: int
    round: int
    expanded: int
    at_limit: int
    new: int
    dropped: int
    unexpanded: int

    @property
    def cut(self) -> bool:
        """Whether anything was left out."""
        return bool(self.at_limit or self.dropped or self.unexpanded)


class Connection(NamedTuple):
    """The shortest paths from side `left` to side `right`.

    ``layers[i]`` holds the edges from entities at distance i to those at distance i + 1; each of
    them lies on a path of ``length == len(layers)`` edges.
    """

    left: int
    right: int
    layers: tuple[Edges, ...]

    @property
    def length(self) -> int:
        """Edges of each path."""
        return len(self.layers)


class Unconnected(NamedTuple):
    """Two sides between which no path was found.

    `exhausted` if one side was searched to its last entity and nothing was cut: then there is no
    path; otherwise there may be one that is longer, or runs through what was cut.
    """

    left: int
    right: int
    rounds: int
    exhausted: bool


@dataclass(frozen=True, slots=True)
class Connections:
    """What a search found and how far it looked.

    Attributes
    ----------
    found
        Pairs of sides that are connected, by left, then right.
    unconnected
        The other pairs, in the same order.
    stages
        What each side did in each round.
    nodes
        Entities seen by each side, itself among them.
    full_checks
        Checks that brought as many links as they may, so that more may have been left out.
    """

    found: tuple[Connection, ...] = ()
    unconnected: tuple[Unconnected, ...] = ()
    stages: tuple[Stage, ...] = ()
    nodes: tuple[int, ...] = ()
    full_checks: int = 0


Wanted = NeighborsWanted | LinksWanted
Answer = list[NeighborsFound] | list[Edges]
Search = Generator[Wanted, Answer, Connections]
