"""The shortest paths between two sides as a layered graph.

Paths are counted and compared by dynamic programming over the layers and never enumerated, so a
million paths cost no more than the edges that they share.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from llama_index_graph_rag.graph.connections import Connection, Edges, Order, Rows

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

Path = tuple[int, ...]
"""The nodes of a path in their PathGraph."""

MAX_WEIGHT = (1 << 40) - 1
"""Greatest weight of an edge."""


@dataclass(frozen=True, slots=True)
class PathGraph:
    """The edges on the shortest paths between two sides, layer by layer.

    Nodes are numbered by distance from the left side, then by name, so that the smallest number
    is the first name wherever two are equal.

    Attributes
    ----------
    left, right
        Numbers of the two sides.
    rows
        Entity row of each node.
    offsets
        Nodes at distance i are those from ``offsets[i]`` up to ``offsets[i + 1]``.
    sources, targets, counts
        For each layer, the edges by source, then target: nodes, and how many relations join them.
    bounds
        For each layer, where the edges of each of its source nodes start, and where the last end.
    weights
        For each layer, how near each edge is to the question: 0 to MAX_WEIGHT.

    Examples
    --------
    >>> graph = PathGraph.layered([1, 2, 3, 3, 1])
    >>> graph.n_paths, len(graph.rows)
    (18.0, 10)
    """

    left: int
    right: int
    rows: Rows
    offsets: tuple[int, ...]
    sources: tuple[Ints, ...]
    targets: tuple[Ints, ...]
    counts: tuple[Rows, ...]
    bounds: tuple[Ints, ...]
    weights: tuple[Ints, ...]

    @classmethod
    def of(cls, connection: Connection, order: Order) -> PathGraph:
        """Build from a connection that a search found; an edge weighs what it counts.

        Parameters
        ----------
        connection
            Layers of edges.
        order
            The order by name.
        """
        layers = connection.layers
        levels = [_unique(layer.sources) for layer in layers] + [_unique(layers[-1].targets)]
        orders = [np.argsort(order(level)) for level in levels]
        offsets = np.cumsum([0, *map(len, levels)])
        n = int(offsets[-1])
        # The node of the j-th row (ascending) of a level.
        nodes = [start + np.argsort(by_name) for start, by_name in zip(offsets, orders)]
        sources, targets, counts = [], [], []
        for i, layer in enumerate(layers):
            source = nodes[i][np.searchsorted(levels[i], layer.sources)]
            target = nodes[i + 1][np.searchsorted(levels[i + 1], layer.targets)]
            _, first = np.unique(source * n + target, return_index=True)
            sources.append(source[first])
            targets.append(target[first])
            counts.append(layer.counts[first])
        return cls(
            connection.left,
            connection.right,
            np.concatenate([level[by_name] for level, by_name in zip(levels, orders)]),
            tuple(offsets.tolist()),
            tuple(sources),
            tuple(targets),
            tuple(counts),
            tuple(map(_bounds, sources, offsets.tolist(), map(len, levels))),
            tuple(count.astype(np.int64) for count in counts),
        )

    @classmethod
    def layered(cls, widths: Sequence[int]) -> PathGraph:
        """Build the graph in which each node is joined to all of the next layer.

        Examples
        --------
        >>> PathGraph.layered([1, 100, 100, 100, 1]).n_paths
        1000000.0
        """
        ends = np.cumsum([0, *widths])
        layers = []
        for i in range(len(widths) - 1):
            source = np.repeat(np.arange(ends[i], ends[i + 1]), widths[i + 1])
            target = np.tile(np.arange(ends[i + 1], ends[i + 2]), widths[i])
            layers.append(
                Edges(
                    source.astype(np.int32),
                    target.astype(np.int32),
                    np.ones(len(source), dtype=np.int32),
                )
            )
        return cls.of(Connection(0, 1, tuple(layers)), lambda rows: rows)

    @property
    def length(self) -> int:
        """Edges of each path."""
        return len(self.sources)

    @property
    def n_edges(self) -> int:
        """Edges on the shortest paths."""
        return sum(map(len, self.sources))

    @property
    def n_paths(self) -> float:
        """How many shortest paths there are (exact up to 2**53)."""
        return float(self._ways_on()[: self.offsets[1]].sum())

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Entity rows of all edges, layer by layer."""
        source = self.rows[np.concatenate(self.sources)]
        target = self.rows[np.concatenate(self.targets)]
        return list(zip(source.tolist(), target.tolist()))

    def with_weights(self, weights: Sequence[float]) -> PathGraph:
        """Return the graph with the nearness of each of `edges` to the question.

        Parameters
        ----------
        weights
            One number an edge, in the order of `edges`, from -1 (far) to 1 (near).
        """
        scaled = (np.clip(np.asarray(weights, dtype=np.float64), -1, 1) + 1) * 1e6
        cuts = np.cumsum([len(layer) for layer in self.sources])[:-1]
        return replace(self, weights=tuple(np.split(scaled.astype(np.int64), cuts)))

    def without(self, edges: Sequence[Ints]) -> PathGraph:
        """Return the graph without these edges (their places, by layer); all nodes must remain."""
        kept = zip(self.sources, self.targets, self.counts, self.weights)
        layers = [[np.delete(part, gone) for part in layer] for layer, gone in zip(kept, edges)]
        sources, targets, counts, weights = map(tuple, zip(*layers))
        widths = [len(bounds) - 1 for bounds in self.bounds]
        bounds = tuple(map(_bounds, sources, self.offsets, widths))
        return replace(
            self, sources=sources, targets=targets, counts=counts, bounds=bounds, weights=weights
        )

    def paths_by_edge(self) -> list[Floats]:
        """Return how many of the shortest paths run over each edge, by layer."""
        ahead, behind = self._ways_on(), np.ones(len(self.rows))
        for i in range(self.length):
            ways = np.bincount(
                self.targets[i], weights=behind[self.sources[i]], minlength=len(self.rows)
            )
            layer = slice(self.offsets[i + 1], self.offsets[i + 2])
            behind[layer] = ways[layer]
        return [behind[s] * ahead[t] for s, t in zip(self.sources, self.targets)]

    def edges_of(self, i: int, node: int) -> tuple[int, int]:
        """Return where the edges of a node of layer i start and end in that layer."""
        place = node - self.offsets[i]
        start, end = self.bounds[i][place : place + 2].tolist()
        return start, end

    def _ways_on(self) -> Floats:
        """Return the number of paths from each node to the right side."""
        ways = np.ones(len(self.rows))
        for i in range(self.length - 1, -1, -1):
            layer = slice(self.offsets[i], self.offsets[i + 1])
            ways[layer] = np.add.reduceat(ways[self.targets[i]], self.bounds[i][:-1])
        return ways

    def best(self, nodes: Ints, edges: Sequence[Ints]) -> tuple[int, Path]:
        """Return the value of the best path and the path, the first by name where equal.

        Parameters
        ----------
        nodes
            What each node is worth.
        edges
            What each edge is worth, by layer.
        """
        best = nodes.copy()
        choices = []
        for i in range(self.length - 1, -1, -1):
            value = edges[i] + best[self.targets[i]]
            layer = slice(self.offsets[i], self.offsets[i + 1])
            best[layer] += np.maximum.reduceat(value, self.bounds[i][:-1])
            choices.append(value)
        choices.reverse()
        node = int(best[: self.offsets[1]].argmax())
        path, total = [node], int(best[node])
        for i, value in enumerate(choices):
            start, end = self.edges_of(i, node)
            node = int(self.targets[i][start + value[start:end].argmax()])
            path.append(node)
        return total, tuple(path)

    def ranked(
        self, nodes: Ints | None = None, edges: Sequence[Ints] | None = None
    ) -> Iterator[tuple[int, Path]]:
        """Yield the value of each path and the path lazily, the best first, then by name.

        Parameters
        ----------
        nodes, edges
            What each node, and each edge by layer, is worth; default: nothing, and its weight.
        """
        edges = self.weights if edges is None else edges
        ahead = np.zeros(len(self.rows), dtype=np.int64) if nodes is None else nodes.copy()
        values = []
        for i in range(self.length - 1, -1, -1):
            value = edges[i] + ahead[self.targets[i]]
            layer = slice(self.offsets[i], self.offsets[i + 1])
            ahead[layer] += np.maximum.reduceat(value, self.bounds[i][:-1])
            values.append(value)
        values.reverse()
        # Best first search with the exact value of what is ahead: no path is looked at in vain.
        heap: list[tuple[int, Path]] = [(-int(ahead[n]), (n,)) for n in range(self.offsets[1])]
        heapq.heapify(heap)
        while heap:
            bound, path = heapq.heappop(heap)
            i, node = len(path) - 1, path[-1]
            if i == self.length:
                yield -bound, path
                continue
            start, end = self.edges_of(i, node)
            options = values[i][start:end]
            for target, worse in zip(self.targets[i][start:end], options.max() - options):
                heapq.heappush(heap, (bound + int(worse), (*path, int(target))))


def _bounds(sources: Ints, first: int, n_nodes: int) -> Ints:
    # Each node of a layer has an edge onwards, and edges are in the order of nodes.
    bounds = np.zeros(n_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(sources - first, minlength=n_nodes), out=bounds[1:])
    return bounds


def _unique(rows: Rows) -> Rows:
    return rows if len(rows) == 1 else np.unique(rows)
