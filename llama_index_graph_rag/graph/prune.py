"""Fewer paths, or fewer relations, out of many shortest paths: as many entities as can be kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.graph.path_graph import Ints, Path, PathGraph

# An entity not yet shown outweighs all edges of a path, and an edge not yet shown all weights.
_NODE = 1 << 52
_EDGE = 1 << 46
# How many paths are tried, best first, until one fits a budget of relations.
_TRIES = 1_000


@dataclass(frozen=True, slots=True)
class ChosenPath:
    """A path that was kept.

    Attributes
    ----------
    left, right
        Numbers of the sides that it joins.
    rows
        Entity rows from left to right, no row twice.
    """

    left: int
    right: int
    rows: tuple[int, ...]

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Entity rows of its edges."""
        return list(pairwise(self.rows))


def choose_paths(graphs: Sequence[PathGraph], max_paths: int = 5) -> list[ChosenPath]:
    """Return at most `max_paths` paths that show as many entities as can be.

    All paths if they are not more. Otherwise, one after the other, the path with the most
    entities not yet shown, then the most edges not yet shown, then the greatest weight, then the
    first by name; after that each is exchanged for a better one as long as there is one.

    Sides that are connected stay so: the first paths join them, the shortest connections first.
    With many sides that may take more paths than `max_paths`, one less than there are sides.

    This is a heuristic for maximum coverage: against brute force on small random graphs 97% of
    its results are the best there are.

    Parameters
    ----------
    graphs
        Shortest paths, one graph a pair of sides.
    max_paths
        Budget of paths over all graphs.

    Raises
    ------
    GraphRAGValueError
        If `max_paths` is less than 1.

    Examples
    --------
    >>> paths = choose_paths([PathGraph.layered([1, 2, 3, 3, 1])])
    >>> len(paths), len({row for path in paths for row in path.rows})
    (5, 10)
    """
    if max_paths < 1:
        raise GraphRAGValueError(f"max_paths is {max_paths}; give 1 or more")
    if sum(graph.n_paths for graph in graphs) <= max_paths:
        return [_chosen(graph, path) for graph in graphs for _, path in graph.ranked()]
    cover = _Cover(graphs)
    cover.join()
    while len(cover.paths) < max_paths and cover.add_best():
        pass
    cover.exchange()
    cover.fill(max_paths)
    return cover.result()


def choose_relations(graphs: Sequence[PathGraph], max_relations: int) -> list[ChosenPath]:
    """Return paths over at most `max_relations` different edges that show all that is left.

    Edges are deleted while they are too many: first those on the fewest shortest paths, then of
    the least weight; never the last way into or out of an entity. If they are still too many when
    no more can go without losing an entity, paths are chosen instead: one after the other the one
    with the most entities, then edges, not yet shown, of those that fit what is left of the
    budget. Sides that are connected stay so, even if that takes more edges than the budget.

    Parameters
    ----------
    graphs
        Shortest paths, one graph a pair of sides.
    max_relations
        Budget of edges (pairs of entities that relations join) over all graphs.

    Raises
    ------
    GraphRAGValueError
        If `max_relations` is less than 1.

    Examples
    --------
    >>> paths = choose_relations([PathGraph.layered([1, 2, 3, 3, 1])], 12)
    >>> len({edge for path in paths for edge in path.edges})
    12
    >>> len({row for path in paths for row in path.rows})
    10
    """
    if max_relations < 1:
        raise GraphRAGValueError(f"max_relations is {max_relations}; give 1 or more")
    thin = list(graphs)
    while (excess := _n_edges(thin) - max_relations) > 0:
        # A small share at a time: the number of paths over an edge changes with each deletion.
        if not _delete_edges(thin, max(1, excess // 16)):
            thin = list(graphs)
            break
    cover = _Cover(thin)
    cover.join()
    while cover.add_fitting(max_relations):
        pass
    return cover.result()


def _chosen(graph: PathGraph, path: Path) -> ChosenPath:
    return ChosenPath(graph.left, graph.right, tuple(graph.rows[list(path)].tolist()))


def _edge_keys(graph: PathGraph) -> list[NDArray[np.int64]]:
    """Return a number for each edge, by layer, that does not depend on its direction."""
    keys = []
    for source, target in zip(graph.sources, graph.targets):
        ends = graph.rows[source].astype(np.int64), graph.rows[target].astype(np.int64)
        keys.append((np.minimum(*ends) << 32) | np.maximum(*ends))
    return keys


def _n_edges(graphs: Sequence[PathGraph]) -> int:
    keys = [key for graph in graphs for key in _edge_keys(graph)]
    return len(np.unique(np.concatenate(keys))) if keys else 0


def _delete_edges(graphs: list[PathGraph], number: int) -> int:
    """Delete up to `number` edges that no entity needs; return how many."""
    paths, weights, places = [], [], []
    for g, graph in enumerate(graphs):
        for i, (on_edge, weight) in enumerate(zip(graph.paths_by_edge(), graph.weights)):
            paths.append(on_edge)
            weights.append(weight)
            places += [(g, i, edge) for edge in range(len(weight))]
    last_first = -np.arange(len(places))
    order = np.lexsort((last_first, np.concatenate(weights), np.concatenate(paths)))
    out = [np.bincount(np.concatenate(graph.sources)).tolist() for graph in graphs]
    into = [np.bincount(np.concatenate(graph.targets)).tolist() for graph in graphs]
    gone: dict[int, list[list[int]]] = {}
    deleted = 0
    for place in order.tolist():
        g, i, edge = places[place]
        source, target = int(graphs[g].sources[i][edge]), int(graphs[g].targets[i][edge])
        if out[g][source] > 1 and into[g][target] > 1:
            out[g][source] -= 1
            into[g][target] -= 1
            gone.setdefault(g, [[] for _ in range(graphs[g].length)])[i].append(edge)
            deleted += 1
            if deleted == number:
                break
    for g, layers in gone.items():
        graphs[g] = graphs[g].without([np.array(layer, dtype=np.int64) for layer in layers])
    return deleted


class _Cover:
    """Paths chosen so far, and how many of them show each entity and each edge."""

    def __init__(self, graphs: Sequence[PathGraph]) -> None:
        self.graphs = graphs
        self.paths: list[tuple[int, Path]] = []
        # Entities and edges that several graphs share have one number.
        rows = [graph.rows for graph in graphs]
        keys = [key for graph in graphs for key in _edge_keys(graph)]
        self.node_numbers, n_nodes = _numbers(rows)
        edges, n_edges = _numbers(keys)
        cuts = iter(edges)
        self.edge_numbers = [[next(cuts) for _ in range(graph.length)] for graph in graphs]
        self.nodes_shown = np.zeros(n_nodes, dtype=np.int64)
        self.edges_shown = np.zeros(n_edges, dtype=np.int64)

    def result(self) -> list[ChosenPath]:
        """Return the chosen paths in the order of the graphs, then as they were chosen."""
        ordered = sorted(self.paths, key=lambda chosen: chosen[0])
        return [_chosen(self.graphs[g], path) for g, path in ordered]

    def join(self) -> None:
        """Add paths that join all sides that can be joined, the shortest connections first."""
        group = list(range(1 + max((graph.right for graph in self.graphs), default=0)))
        for g in sorted(range(len(self.graphs)), key=lambda g: self.graphs[g].length):
            left, right = group[self.graphs[g].left], group[self.graphs[g].right]
            if left != right:
                group = [left if side == right else side for side in group]
                self._add(g, self._best(g)[1])

    def add_best(self) -> bool:
        """Add the path that shows most, if it shows anything new."""
        options = [(*self._best(g), g) for g in range(len(self.graphs))]
        value, path, g = max(options, key=lambda option: option[0])
        if value < _EDGE:
            return False
        self._add(g, path)
        return True

    def add_fitting(self, max_edges: int) -> bool:
        """Add the path that shows most with the edges that are left, if it shows anything new."""
        left = max_edges - int(np.count_nonzero(self.edges_shown))
        options = []
        for g, graph in enumerate(self.graphs):
            for value, path in islice(graph.ranked(*self._worth(g)), _TRIES):
                if value >= _EDGE and value % _NODE // _EDGE <= left:
                    options.append((value, -g, path))
                    break
        if not options:
            return False
        _, g, path = max(options)
        self._add(-g, path)
        return True

    def exchange(self) -> None:
        """Exchange each path for a better one of its graph, as long as there is one."""
        better = not self._is_full()
        while better:
            better = False
            for place, (g, path) in enumerate(self.paths):
                self._count(g, path, -1)
                value, other = self._best(g)
                if value > self._value(g, path) and (g, other) not in self.paths:
                    self.paths[place], path, better = (g, other), other, True
                self._count(g, path, 1)

    def fill(self, max_paths: int) -> None:
        """Add the heaviest paths not yet chosen, of which all is shown already."""
        for g, graph in enumerate(self.graphs):
            for _, path in graph.ranked():
                if len(self.paths) >= max_paths:
                    return
                if (g, path) not in self.paths:
                    self._add(g, path)

    def _is_full(self) -> bool:
        """Whether so many paths cannot show more entities and edges."""
        if len(self.graphs) > 1:
            return False
        shown = int(np.count_nonzero(self.nodes_shown)), int(np.count_nonzero(self.edges_shown))
        graph, n = self.graphs[0], len(self.paths)
        widths = np.diff(graph.offsets)
        return shown == (
            int(np.minimum(widths, n).sum()),
            sum(min(len(layer), n) for layer in graph.sources),
        )

    def _worth(self, g: int) -> tuple[Ints, list[Ints]]:
        """Return what each node and each edge of a graph would add."""
        nodes = np.where(self.nodes_shown[self.node_numbers[g]] > 0, 0, _NODE)
        edges = [
            np.where(self.edges_shown[numbers] > 0, 0, _EDGE) + weights
            for numbers, weights in zip(self.edge_numbers[g], self.graphs[g].weights)
        ]
        return nodes, edges

    def _best(self, g: int) -> tuple[int, Path]:
        return self.graphs[g].best(*self._worth(g))

    def _value(self, g: int, path: Path) -> int:
        places = self._places(g, path)
        nodes = self.nodes_shown[self.node_numbers[g][list(path)]] == 0
        value = int(nodes.sum()) * _NODE
        for layer, weights, place in zip(self.edge_numbers[g], self.graphs[g].weights, places):
            value += int(weights[place]) + (0 if self.edges_shown[layer[place]] else _EDGE)
        return value

    def _places(self, g: int, path: Path) -> list[int]:
        """Return the place of each edge of the path in its layer."""
        graph, places = self.graphs[g], []
        for i, (source, target) in enumerate(pairwise(path)):
            start, end = graph.edges_of(i, source)
            places.append(int(start + np.searchsorted(graph.targets[i][start:end], target)))
        return places

    def _add(self, g: int, path: Path) -> None:
        self.paths.append((g, path))
        self._count(g, path, 1)

    def _count(self, g: int, path: Path, times: int) -> None:
        self.nodes_shown[self.node_numbers[g][list(path)]] += times
        for numbers, edge in zip(self.edge_numbers[g], self._places(g, path)):
            self.edges_shown[numbers[edge]] += times


def _numbers(parts: Sequence[NDArray[np.integer]]) -> tuple[list[Ints], int]:
    """Return the values of all parts renumbered from 0, and how many different ones there are."""
    if not parts:
        return [], 0
    values, numbers = np.unique(np.concatenate(parts), return_inverse=True)
    return np.split(numbers, np.cumsum([len(part) for part in parts])[:-1]), len(values)
