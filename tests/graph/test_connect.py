"""Two-sided search against networkx, and against a plain reading of the rule where caps bind."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.graph.connect import connect
from llama_index_graph_rag.graph.connections import (
    Answer,
    Connections,
    ConnectLimits,
    LinksWanted,
    Wanted,
)
from llama_index_graph_rag.graph.link_matrix import LinkMatrix
from llama_index_graph_rag.graph.path_graph import PathGraph


def matrix_of(n, edges):
    ends = np.array(edges, dtype=np.int32).reshape(-1, 2)
    return LinkMatrix.build(n, ends[:, 0], ends[:, 1])


def search(matrix, sides, limits=None, asked: list[Wanted] | None = None) -> Connections:
    process = connect(sides, matrix.order, limits or ConnectLimits(), size=len(matrix.ranks))
    answer: Answer | None = None
    try:
        while True:
            wanted = process.send(answer)  # type: ignore[arg-type]
            if asked is not None:
                asked.append(wanted)
            answer = matrix.answer(wanted)
    except StopIteration as stop:
        return stop.value


def paths_of(connection, matrix):
    graph = PathGraph.of(connection, matrix.order)
    return [tuple(graph.rows[list(path)].tolist()) for _, path in graph.ranked()]


def chain(length):
    return matrix_of(length + 1, [(i, i + 1) for i in range(length)])


random_graphs = st.integers(2, 24).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=2 * n),
    )
)


@settings(max_examples=150, deadline=None)
@given(random_graphs)
def test_equals_networkx_when_no_cap_binds(graph):
    n, edges = graph
    matrix = matrix_of(n, edges)
    reference = nx.Graph()
    reference.add_nodes_from(range(n))
    reference.add_edges_from(edges)
    for a in range(min(n, 4)):
        for b in range(a + 1, n):
            found = search(matrix, [[a], [b]])
            near = nx.has_path(reference, a, b) and nx.shortest_path_length(reference, a, b)
            if not near or near > 7:
                assert not found.found
                (lost,) = found.unconnected
                assert lost.exhausted <= (not near)
                continue
            (connection,) = found.found
            assert connection.length == near
            paths = paths_of(connection, matrix)
            assert sorted(paths) == sorted(map(tuple, nx.all_shortest_paths(reference, a, b)))
            assert len(paths) == PathGraph.of(connection, matrix.order).n_paths


@pytest.mark.parametrize("length", range(1, 9))
def test_every_distance_and_what_it_costs(length):
    asked: list[Wanted] = []
    matrix = chain(length)
    found = search(matrix, [[0], [length]], asked=asked)
    if length == 8:
        assert not found.found
        assert found.unconnected[0].rounds == 3
        assert not found.unconnected[0].exhausted
    else:
        assert paths_of(found.found[0], matrix) == [tuple(range(length + 1))]
    expansions = [wanted for wanted in asked if not isinstance(wanted, LinksWanted)]
    assert len(expansions) == min(length // 2, 3)
    assert len(asked) <= 7


def test_a_direct_link_stops_the_search():
    matrix = matrix_of(3, [(0, 1), (0, 2), (2, 1), (1, 0)])
    asked: list[Wanted] = []
    found = search(matrix, [[0], [1]], asked=asked)
    assert found.found[0].layers[0].counts.tolist() == [2]
    assert len(asked) == 1


def test_self_loops_and_separate_parts():
    matrix = matrix_of(4, [(0, 0), (0, 1), (2, 3), (3, 3)])
    found = search(matrix, [[0], [2]])
    assert not found.found
    assert found.unconnected[0].exhausted
    assert found.nodes == (2, 2)


def test_entities_without_any_relation_cost_one_check():
    asked: list[Wanted] = []
    found = search(matrix_of(2, []), [[0], [1]], asked=asked)
    assert found.unconnected[0].exhausted
    assert len(asked) == 2


@settings(max_examples=60, deadline=None)
@given(random_graphs, st.integers(3, 5))
def test_several_sides_grow_together(graph, k):
    n, edges = graph
    if n < k:
        return
    matrix = matrix_of(n, edges)
    asked: list[Wanted] = []
    together = search(matrix, [[row] for row in range(k)], asked=asked)
    assert len(asked) <= 7
    lengths = {(c.left, c.right): sorted(paths_of(c, matrix)) for c in together.found}
    for i in range(k):
        for j in range(i + 1, k):
            alone = search(matrix, [[i], [j]]).found
            assert lengths.get((i, j)) == (sorted(paths_of(alone[0], matrix)) if alone else None)


def test_a_side_of_several_entities_connects_from_the_nearest():
    matrix = matrix_of(6, [(0, 2), (2, 3), (3, 4), (1, 4), (4, 5)])
    (connection,) = search(matrix, [[0, 1], [5]]).found
    assert paths_of(connection, matrix) == [(1, 4, 5)]


@pytest.mark.parametrize("sides", [[[0], []], [[0], [0]], [[0, 0], [1]]])
def test_bad_sides_are_refused(sides):
    with pytest.raises(GraphRAGValueError, match="an empty one or a row twice"):
        search(chain(3), sides)


@pytest.mark.parametrize("name", ["rounds", "neighbors", "new_nodes", "frontier", "links"])
def test_bad_limits_are_refused(name):
    with pytest.raises(GraphRAGValueError, match=f"{name} is -1"):
        ConnectLimits(**{name: -1})


# --- caps ---------------------------------------------------------------------------------------


def plain_growth(adjacency, starts, limits):
    """Grow one side as the rule says, with dictionaries; return levels by round."""
    seen = dict.fromkeys(starts, 0)
    frontier = list(starts)
    rounds = []
    for level in range(1, limits.rounds + 1):
        links: dict[int, int] = {}
        for row in frontier:
            nearest = sorted(adjacency[row].items(), key=lambda item: (-item[1], item[0]))
            for other, count in nearest[: limits.neighbors]:
                if other not in seen:
                    links[other] = links.get(other, 0) + count
        new = sorted(links, key=lambda row: (-links[row], row))[: limits.new_nodes]
        seen.update(dict.fromkeys(new, level))
        frontier = new[: limits.frontier]
        rounds.append(set(new))
    return rounds


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), max_size=60),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_caps_keep_the_best_linked_then_by_name(edges, neighbors, new_nodes, frontier):
    limits = ConnectLimits(neighbors=neighbors, new_nodes=new_nodes, frontier=frontier)
    # Row 15 is linked to nothing, so that the other side grows through all its rounds.
    matrix = matrix_of(16, edges)
    adjacency: dict[int, dict[int, int]] = {row: {} for row in range(16)}
    for a, b in edges:
        if a != b:
            adjacency[a][b] = adjacency[a].get(b, 0) + 1
            adjacency[b][a] = adjacency[b].get(a, 0) + 1
    expected = plain_growth(adjacency, [0], limits)
    got = [set(rows) for rows in frontiers(matrix, limits)]
    for level, rows in enumerate(got[1:]):
        assert rows <= expected[level]
        assert len(rows) == min(len(expected[level]), frontier)


def frontiers(matrix, limits):
    asked: list[Wanted] = []
    search(matrix, [[0], [15]], limits, asked)
    return [w.frontiers[0].tolist() for w in asked if not isinstance(w, LinksWanted)]


def test_what_is_cut_is_recorded():
    # A star: 0 in the middle of 1 to 9, and 10 far away behind 9.
    matrix = matrix_of(13, [(0, row) for row in range(1, 10)] + [(9, 10), (10, 11), (11, 12)])
    limits = ConnectLimits(neighbors=8, new_nodes=6, frontier=4)
    found = search(matrix, [[0], [12]], limits)
    first = found.stages[0]
    assert (first.expanded, first.at_limit, first.new, first.dropped, first.unexpanded) == (
        *(1, 1, 6),
        *(2, 2),
    )
    assert first.cut
    # The check of links has no such limit, so the path through 9 is found from the other end.
    assert paths_of(found.found[0], matrix) == [(0, 9, 10, 11, 12)]


def test_a_hub_is_found_from_its_small_neighbour():
    # 0 is a hub whose hundred listed neighbours do not hold 101 and more.
    edges = [(0, row) for row in range(1, 300)] + [(299, 300)]
    matrix = matrix_of(301, edges)
    (connection,) = search(matrix, [[0], [300]]).found
    assert paths_of(connection, matrix) == [(0, 299, 300)]


def test_a_full_check_of_links_is_recorded():
    matrix = matrix_of(40, [(a, b) for a in range(2) for b in range(2, 40)])
    found = search(matrix, [[0, 1], list(range(2, 40))], ConnectLimits(links=10))
    assert found.full_checks == 1
    assert len(found.found[0].layers[0].sources) == 10


# --- the matrix ---------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(random_graphs, st.integers(1, 5), st.randoms(use_true_random=False))
def test_matrix_against_dictionaries(graph, limit, random):
    n, edges = graph
    names = list(range(n))
    random.shuffle(names)
    ranks = np.array(names, dtype=np.int32)
    ends = np.array(edges, dtype=np.int32).reshape(-1, 2)
    matrix = LinkMatrix.build(n, ends[:, 0], ends[:, 1], ranks)
    counts: dict[tuple[int, int], int] = {}
    for a, b in edges:
        if a != b:
            counts[a, b] = counts.get((a, b), 0) + 1
            counts[b, a] = counts.get((b, a), 0) + 1
    rows = np.arange(n, dtype=np.int32)
    expected = [
        (a, b, counts[a, b])
        for a in range(n)
        for b in sorted(
            (b for b in range(n) if (a, b) in counts), key=lambda b: (-counts[a, b], ranks[b])
        )[:limit]
    ]
    found = matrix.neighbors(rows, limit)
    assert list(zip(*(part.tolist() for part in found.edges))) == expected
    half = n // 2
    links = matrix.links(rows[:half], rows[half:], 1_000)
    assert sorted(zip(*(part.tolist() for part in links))) == sorted(
        (a, b, count) for (a, b), count in counts.items() if a < half <= b
    )
    capped = matrix.links(rows[:half], rows[half:], limit)
    assert sorted(capped.counts.tolist()) == sorted(
        sorted(links.counts.tolist(), reverse=True)[:limit]
    )
