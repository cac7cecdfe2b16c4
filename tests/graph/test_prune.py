"""Pruning against brute force, and what it must never lose."""

from __future__ import annotations

import itertools
import time
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.graph.connections import Connection, Edges
from llama_index_graph_rag.graph.path_graph import PathGraph
from llama_index_graph_rag.graph.prune import choose_paths, choose_relations


def rows_of(paths):
    return {row for path in paths for row in path.rows}


def edges_of(paths):
    return {edge for path in paths for edge in path.edges}


def enumerate_paths(layers):
    """All paths over lists of (source, target)."""
    paths = [(source,) for source in sorted({source for source, _ in layers[0]})]
    for layer in layers:
        paths = [(*p, target) for p in paths for source, target in sorted(layer) if source == p[-1]]
    return paths


def graph_of(layers, left=0, right=1, counts=None):
    arrays = []
    for layer in layers:
        ends = np.array(sorted(layer), dtype=np.int32)
        count = [1 if counts is None else counts[edge] for edge in sorted(layer)]
        arrays.append(Edges(ends[:, 0], ends[:, 1], np.array(count, dtype=np.int32)))
    return PathGraph.of(Connection(left, right, tuple(arrays)), lambda rows: rows)


def random_layers(random, widths, density=0.5):
    """Layers in which each node has a way in and a way out."""
    starts = np.cumsum([0, *widths])
    levels = [range(starts[i], starts[i + 1]) for i in range(len(widths))]
    layers = []
    for before, after in itertools.pairwise(levels):
        layer = {(a, b) for a in before for b in after if random.random() < density}
        layer |= {(a, random.choice(list(after))) for a in before}
        layer |= {(random.choice(list(before)), b) for b in after}
        layers.append({(int(a), int(b)) for a, b in layer})
    return layers


layered = st.lists(st.integers(1, 4), min_size=0, max_size=4).map(lambda inner: [1, *inner, 1])


@settings(max_examples=80, deadline=None)
@given(layered, st.randoms(use_true_random=False))
def test_counts_and_ranked_paths_equal_enumeration(widths, random):
    layers = random_layers(random, widths)
    counts = {edge: random.randint(1, 5) for layer in layers for edge in layer}
    graph = graph_of(layers, counts=counts)
    expected = enumerate_paths(layers)
    assert graph.n_paths == len(expected)
    ranked = [tuple(graph.rows[list(path)].tolist()) for _, path in graph.ranked()]

    def weight(path):
        return sum(counts[edge] for edge in itertools.pairwise(path))

    assert ranked == sorted(expected, key=lambda path: (-weight(path), path))
    on_edge = np.concatenate(graph.paths_by_edge())
    for edge, paths in zip(graph.edges, on_edge):
        assert paths == sum(edge in itertools.pairwise(path) for path in expected)


def test_2_3_3_keeps_all_ten_entities_on_five_paths():
    graph = PathGraph.layered([1, 2, 3, 3, 1])
    assert graph.n_paths == 18
    paths = choose_paths([graph])
    assert len(paths) == 5
    assert len(rows_of(paths)) == 10


def test_a_million_paths():
    graph = PathGraph.layered([1, 100, 100, 100, 1])
    start = time.perf_counter()
    assert graph.n_paths == 1_000_000
    counted = time.perf_counter() - start
    paths = choose_paths([graph])
    chosen = time.perf_counter() - start
    assert counted < 0.1
    assert chosen < 0.5
    assert len(rows_of(paths)) == 2 + 3 * 5
    assert len(edges_of(paths)) == 4 * 5


def test_all_paths_stay_when_they_fit():
    graph = PathGraph.layered([1, 5, 1])
    assert [path.rows for path in choose_paths([graph])] == [(0, i, 6) for i in range(1, 6)]


@settings(max_examples=60, deadline=None)
@given(layered, st.integers(1, 6), st.randoms(use_true_random=False))
def test_a_budget_of_paths_is_kept_exactly(widths, budget, random):
    layers = random_layers(random, widths)
    expected = enumerate_paths(layers)
    paths = choose_paths([graph_of(layers)], budget)
    rows = [path.rows for path in paths]
    assert len(set(rows)) == len(rows) == min(budget, len(expected))
    assert set(rows) <= set(expected)


def coverage(paths):
    entities = {row for path in paths for row in path}
    edges = {edge for path in paths for edge in itertools.pairwise(path)}
    return len(entities), len(edges)


def small_graphs(n, max_width, max_paths, density, seed):
    random = Random(seed)
    while n:
        widths = [
            1,
            *(random.randint(2, max_width) for _ in range(random.randint(2, max_width))),
            1,
        ]
        layers = random_layers(random, widths, density)
        every = enumerate_paths(layers)
        if 4 < len(every) <= max_paths:
            n -= 1
            yield random, layers, every


def test_share_of_the_best_paths_by_brute_force(record_property):
    """Distinct entities, then distinct edges, of the best choice there is."""
    entities_best, best, total = 0, 0, 200
    for random, layers, every in small_graphs(total, 4, 22, 0.35, seed=7):
        budget = random.randint(2, 4)
        optimum = max(coverage(chosen) for chosen in itertools.combinations(every, budget))
        got = coverage([path.rows for path in choose_paths([graph_of(layers)], budget)])
        assert got <= optimum
        entities_best += got[0] == optimum[0]
        best += got == optimum
    record_property("share_entities_optimal", entities_best / total)
    record_property("share_optimal", best / total)
    assert entities_best / total >= 0.97
    assert best / total >= 0.96


def test_share_of_the_best_relations_by_brute_force(record_property):
    """Distinct entities, then surviving shortest paths, of the best choice there is."""
    entities_best, best, total = 0, 0, 100
    for random, layers, every in small_graphs(total, 3, 11, 0.4, seed=8):
        budget = random.randint(len(layers), sum(map(len, layers)) - 1)
        edges = [frozenset(itertools.pairwise(path)) for path in every]

        def value(kept, edges=edges):
            return len({row for edge in kept for row in edge}), sum(e <= kept for e in edges)

        unions = {frozenset()}
        for more in edges:
            unions |= {union | more for union in unions if len(union | more) <= budget}
        optimum = max(map(value, unions))
        got = value(edges_of(choose_relations([graph_of(layers)], budget)))
        assert got <= optimum
        entities_best += got[0] == optimum[0]
        best += got == optimum
    record_property("share_entities_optimal", entities_best / total)
    record_property("share_optimal", best / total)
    assert entities_best / total >= 0.95
    assert best / total >= 0.85


def test_weight_decides_between_equals_and_then_the_name():
    graph = PathGraph.layered([1, 3, 1])
    (first,) = choose_paths([graph], 1)
    assert first.rows == (0, 1, 4)
    near = [edge in {(0, 2), (2, 4)} for edge in graph.edges]
    (nearest,) = choose_paths([graph.with_weights(near)], 1)
    assert nearest.rows == (0, 2, 4)
    counts = {(0, 1): 1, (0, 2): 1, (0, 3): 7, (1, 4): 1, (2, 4): 1, (3, 4): 1}
    layers = [[(0, 1), (0, 2), (0, 3)], [(1, 4), (2, 4), (3, 4)]]
    (linked,) = choose_paths([graph_of(layers, counts=counts)], 1)
    assert linked.rows == (0, 3, 4)


# --- a budget of relations ----------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(layered, st.integers(1, 25), st.randoms(use_true_random=False))
def test_a_budget_of_relations(widths, budget, random):
    layers = random_layers(random, widths)
    graph = graph_of(layers)
    paths = choose_relations([graph], budget)
    shown = edges_of(paths)
    assert shown <= set(graph.edges)
    assert paths
    assert len(shown) <= max(budget, graph.length)
    if graph.n_edges <= budget:
        assert shown == set(graph.edges)
    # No other path would have fitted.
    for path in map(set, map(itertools.pairwise, enumerate_paths(layers))):
        assert path <= shown or len(shown | path) > budget


def test_relations_on_few_paths_go_first_and_no_entity_is_lost():
    # 1 and 2 lead on to 3 and 4; 5 only leads to 3. Each edge of it lies on one path.
    layers = [[(0, 1), (0, 2), (0, 5)], [(1, 3), (1, 4), (2, 3), (2, 4), (5, 3)], [(3, 6), (4, 6)]]
    paths = choose_relations([graph_of(layers)], 8)
    assert rows_of(paths) == set(range(7))
    assert len(edges_of(paths)) == 8


@pytest.mark.parametrize("budget", [20, 12, 10, 8])
def test_2_3_3_within_relations(budget):
    paths = choose_relations([PathGraph.layered([1, 2, 3, 3, 1])], budget)
    assert len(edges_of(paths)) <= budget
    if budget >= 10:
        assert len(rows_of(paths)) >= 9


# --- several pairs ------------------------------------------------------------------------------


def test_sides_that_are_connected_stay_so():
    # Four sides 0 to 3 in a row; between each two neighbours there are three ways.
    graphs = []
    for side in range(3):
        a, b, inner = side * 10, (side + 1) * 10, range(side * 10 + 1, side * 10 + 4)
        graphs.append(
            graph_of([[(a, i) for i in inner], [(i, b) for i in inner]], left=side, right=side + 1)
        )
    paths = choose_paths(graphs, 1)
    assert [(path.left, path.right) for path in paths] == [(0, 1), (1, 2), (2, 3)]
    assert len(choose_paths(graphs, 5)) == 5
    assert len(rows_of(choose_paths(graphs, 5))) == 4 + 5
    assert len(choose_paths(graphs, 9)) == 9
    few = choose_relations(graphs, 1)
    assert {(path.left, path.right) for path in few} == {(0, 1), (1, 2), (2, 3)}


def test_entities_shown_for_one_pair_count_for_another():
    one = graph_of([[(0, 1), (0, 2)], [(1, 9), (2, 9)]], left=0, right=1)
    other = graph_of([[(5, 1), (5, 2)], [(1, 9), (2, 9)]], left=1, right=2)
    paths = choose_paths([one, other], 2)
    assert rows_of(paths) == {0, 1, 2, 5, 9}


def test_nothing_in_nothing_out():
    assert choose_paths([]) == []
    assert choose_relations([], 3) == []


@pytest.mark.parametrize("choose", [choose_paths, choose_relations])
def test_an_empty_budget_is_refused(choose):
    with pytest.raises(GraphRAGValueError, match="is 0; give 1 or more"):
        choose([PathGraph.layered([1, 1])], 0)
