"""The walk against a dense power iteration, written out naively."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.graph.incidence import Incidence
from llama_index_graph_rag.graph.ranking.walk import Walk


@st.composite
def graphs(draw):
    """Draw (n_entities, subjects, objects, stated pairs, n_passages)."""
    n_entities, n_passages = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    n_relations = draw(st.integers(0, 8))
    ends = st.lists(st.integers(0, n_entities - 1), min_size=n_relations, max_size=n_relations)
    pairs = st.tuples(st.integers(0, n_passages - 1), st.integers(0, max(n_relations - 1, 0)))
    stated = draw(st.sets(pairs, max_size=15)) if n_relations else set()
    return n_entities, draw(ends), draw(ends), sorted(stated), n_passages


def build(graph) -> Incidence:
    n_entities, subjects, objects, stated, n_passages = graph
    passages, relations = [p for p, _ in stated], [r for _, r in stated]
    return Incidence.build(
        n_entities, subjects, objects, passages=passages, relations=relations, n_passages=n_passages
    )


def naive(graph, restart, damping, steps, permitted=None):
    """Sum the series over a dense transition matrix made edge by edge."""
    n_entities, subjects, objects, stated, n_passages = graph
    if permitted is not None:
        stated = [(p, r) for p, r in stated if permitted[p]]
    of_relation: dict[int, list[int]] = {}
    of_passage: dict[int, list[int]] = {}
    for passage, relation in stated:
        of_relation.setdefault(relation, []).append(passage)
        of_passage.setdefault(passage, []).append(relation)
    step = np.zeros((n_entities + n_passages, n_entities + n_passages))
    ends = {r: {subjects[r], objects[r]} for r in of_relation}
    for entity in range(n_entities):
        mine = [r for r in ends if entity in ends[r]]
        for relation in mine:
            for end in ends[relation]:
                step[entity, end] += 0.5 / len(mine) / len(ends[relation])
            for passage in of_relation[relation]:
                step[entity, n_entities + passage] += 0.5 / len(mine) / len(of_relation[relation])
    for passage, mine in of_passage.items():
        for relation in mine:
            for end in ends[relation]:
                step[n_entities + passage, end] += 1 / len(mine) / len(ends[relation])
    total = mass = (1 - damping) * restart
    for _ in range(steps):
        mass = damping * (mass @ step)
        total = total + mass
    return total


def masses(size):
    return st.lists(st.floats(0, 1, width=16), min_size=size, max_size=size).map(np.array)


@pytest.mark.parametrize("local", [False, True])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_equals_the_dense_series(local, data):
    graph = data.draw(graphs())
    restart = data.draw(masses(graph[0] + graph[4]))
    permitted = data.draw(st.none() | st.lists(st.booleans(), min_size=graph[4], max_size=graph[4]))
    if permitted is not None:
        permitted = np.array(permitted)
        restart[graph[0] :][~permitted] = 0
    incidence = build(graph)
    walk = Walk(damping=0.6, steps=5, max_edges=10_000, tolerance=0.0)
    entities, passages = restart[: graph[0]], restart[graph[0] :]
    if local:
        from llama_index_graph_rag.graph.ranking import walk as module

        step = module._Local(incidence, permitted, 10_000, 0.0)
        got = module.sum_of_steps(step, entities, passages, walk.damping, walk.steps)
    else:
        got = walk.run(incidence, entities, passages, permitted)
    expected = naive(graph, restart, 0.6, 5, permitted)
    np.testing.assert_allclose(np.concatenate(got), expected, atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_is_linear_in_the_restart(data):
    graph = data.draw(graphs())
    incidence, n = build(graph), graph[0]
    one, two = (data.draw(masses(n + graph[4])) for _ in range(2))
    walk = Walk()
    apart = [np.concatenate(walk.run(incidence, r[:n], r[n:])) for r in (one, two)]
    both = one + two
    together = np.concatenate(walk.run(incidence, both[:n], both[n:]))
    np.testing.assert_allclose(apart[0] + apart[1], together, atol=1e-6)


def hub(n_leaves: int) -> Incidence:
    """Entity 0 is joined to every other; passage i states the relation with entity i + 1."""
    leaves = np.arange(1, n_leaves + 1)
    return Incidence.build(
        n_leaves + 1,
        np.zeros(n_leaves, int),
        leaves,
        passages=leaves - 1,
        relations=leaves - 1,
        n_passages=n_leaves,
    )


def test_a_step_follows_at_most_so_many_edges_those_with_most_mass():
    graph = hub(100)
    entities = np.zeros(101)
    entities[0], entities[1], entities[2] = 1.0, 0.3, 0.2
    _, passages = Walk(steps=1, max_edges=1).run(graph, entities, np.zeros(100))
    # The hub has 0.01 an edge; of the leaves the heavier goes first, and fills the limit.
    assert np.flatnonzero(passages).tolist() == [0]
    _, passages = Walk(steps=1, max_edges=50).run(graph, entities, np.zeros(100))
    assert np.flatnonzero(passages).tolist() == [0, 1]
    _, passages = Walk(steps=1, max_edges=1_000).run(graph, entities, np.zeros(100))
    assert np.count_nonzero(passages) == 100


def test_mass_below_the_tolerance_stays():
    graph = hub(100)
    entities = np.zeros(101)
    entities[0] = 1.0
    # Of the 200 edges at most 150 are followed at once, so this walk is local.
    spread, _ = Walk(steps=1, max_edges=150, tolerance=0.001).run(graph, entities, np.zeros(100))
    stays, _ = Walk(steps=1, max_edges=150, tolerance=0.1).run(graph, entities, np.zeros(100))
    assert np.count_nonzero(spread) == 101
    assert np.flatnonzero(stays).tolist() == [0]


def test_nothing_comes_of_nothing():
    entities, passages = Walk().run(hub(3), np.zeros(4), np.zeros(3))
    assert not entities.any()
    assert not passages.any()
    empty = Incidence.build(0, [], [], passages=[], relations=[], n_passages=0)
    assert [len(part) for part in Walk().run(empty, np.zeros(0), np.zeros(0))] == [0, 0]


@pytest.mark.parametrize(
    "wrong", [{"damping": 1.5}, {"damping": float("nan")}, {"steps": 0}, {"max_edges": 0}]
)
def test_numbers_out_of_range_are_refused(wrong):
    with pytest.raises(GraphRAGValueError, match=next(iter(wrong))):
        Walk(**wrong)
