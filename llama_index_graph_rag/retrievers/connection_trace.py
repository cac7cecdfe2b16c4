"""The record of a search for connections."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from llama_index_graph_rag.graph.connections import Connections, ConnectLimits, Stage
from llama_index_graph_rag.stores.base import EntityRef
from llama_index_graph_rag.trace import RetrievalTrace


class Side(NamedTuple):
    """A name of the question and the entities that it can mean."""

    name: str
    entities: tuple[EntityRef, ...]


class TracedConnection(NamedTuple):
    """Two names that are connected: edges of a path, shortest paths found, and how many stayed."""

    left: str
    right: str
    length: int
    n_paths: float
    n_kept: int


class TracedGap(NamedTuple):
    """Two names between which no path was found, and how far was searched.

    `exhausted` says that there is no path: one side was searched to its end, with nothing cut.
    `left_seen` and `right_seen` count the entities seen from each, itself among them.
    """

    left: str
    right: str
    rounds: int
    exhausted: bool
    left_seen: int
    right_seen: int


@dataclass(slots=True)
class ConnectionTrace(RetrievalTrace):
    """The record of one search for connections.

    Attributes
    ----------
    sides
        The names that were found in the graph, with the entities they can mean.
    connections, gaps
        The pairs of names that are connected, and the others.
    stages
        What each side (by its place in `sides`) did in each round.
    nodes
        Entities seen in all.
    paths
        The paths that were kept, each written in one line.

    Examples
    --------
    >>> ConnectionTrace("What links A and B?").paths
    []
    """

    sides: list[Side] = field(default_factory=list)
    connections: list[TracedConnection] = field(default_factory=list)
    gaps: list[TracedGap] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    nodes: int = 0
    paths: list[str] = field(default_factory=list)

    def searched(self, found: Connections, limits: ConnectLimits) -> None:
        """Take in what a search did, did not find, and cut."""
        names = [side.name for side in self.sides]
        self.stages = list(found.stages)
        self.nodes = sum(found.nodes)
        self.gaps = [
            TracedGap(
                names[gap.left],
                names[gap.right],
                gap.rounds,
                gap.exhausted,
                found.nodes[gap.left],
                found.nodes[gap.right],
            )
            for gap in found.unconnected
        ]
        for stage in found.stages:
            if stage.cut:
                self.dropped.append(_cut(names[stage.side], stage, limits))
        if found.full_checks:
            self.dropped.append(
                f"{found.full_checks} check(s) of direct links brought {limits.links:,}, the most "
                "they may; raise max_links"
            )


def _cut(name: str, stage: Stage, limits: ConnectLimits) -> str:
    parts = []
    if stage.at_limit:
        parts.append(
            f"{stage.at_limit} of {stage.expanded} entities gave {limits.neighbors} neighbours, "
            "the most they may (max_neighbors)"
        )
    if stage.dropped:
        parts.append(f"{stage.dropped} new entities left out (max_new_nodes)")
    if stage.unexpanded:
        parts.append(f"{stage.unexpanded} of {stage.new} new entities not expanded (max_frontier)")
    return f"{name!r}, round {stage.round}: {'; '.join(parts)}"
