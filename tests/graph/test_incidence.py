from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError
from llama_index_graph_rag.graph.incidence import Incidence


@st.composite
def graphs(draw):
    """Sizes, endpoints and (passage, relation) pairs: loops, duplicates, hubs, isolated nodes."""
    n_entities = draw(st.integers(0, 8))
    n_passages = draw(st.integers(0, 5))
    entity = st.integers(0, max(n_entities - 1, 0))
    hubbed = st.one_of(entity, st.just(0))
    ends = draw(st.lists(st.tuples(hubbed, entity), max_size=14)) if n_entities else []
    pair = st.tuples(st.integers(0, max(n_passages - 1, 0)), st.integers(0, max(len(ends) - 1, 0)))
    pairs = draw(st.lists(pair, max_size=25)) if ends and n_passages else []
    return n_entities, n_passages, ends, pairs


def build(spec) -> Incidence:
    n_entities, n_passages, ends, pairs = spec
    return Incidence.build(
        n_entities,
        [s for s, _ in ends],
        [o for _, o in ends],
        passages=[p for p, _ in pairs],
        relations=[r for _, r in pairs],
        n_passages=n_passages,
    )


def dense_h(spec) -> np.ndarray:
    n_entities, _, ends, pairs = spec
    h = np.zeros((n_entities, len(ends)), dtype=np.int64)
    for relation in {r for _, r in pairs}:
        h[list(ends[relation]), relation] = 1
    return h


def reached(h: np.ndarray, entities, relations, degree: int) -> set[int]:
    """The dense formula, with the identity of (HtH)^0 kept to the visible columns."""
    power = np.linalg.matrix_power(h @ h.T, degree) @ h
    visible = np.diag(h.any(axis=0).astype(np.int64))
    back = visible if degree == 0 else np.linalg.matrix_power(h.T @ h, degree)
    mask = power[entities].any(axis=0) | back[relations].any(axis=0)
    return set(np.flatnonzero(mask).tolist())


def rows(values, n):
    return sorted({v % n for v in values}) if n else []


seeds = st.lists(st.integers(0, 30), max_size=4)


@settings(max_examples=300, deadline=None)
@given(graphs(), seeds, seeds, st.integers(0, 4))
def test_expansion_is_the_dense_formula(spec, entities, relations, degree):
    graph, h = build(spec), dense_h(spec)
    entities, relations = rows(entities, h.shape[0]), rows(relations, h.shape[1])
    found = graph.expand(entities=entities, relations=relations, degree=degree)
    assert len(set(found.relations.tolist())) == len(found.relations)
    assert set(found.relations.tolist()) == reached(h, entities, relations, degree)
    for relation, at in zip(found.relations.tolist(), found.degrees.tolist()):
        assert relation in reached(h, entities, relations, at)
        assert at == 0 or relation not in reached(h, entities, relations, at - 1)
    assert (np.diff(found.degrees) >= 0).all()
    assert (found.capped_entities, found.cut_at_entities, found.cut_by_total) == (0, 0, 0)


@settings(max_examples=100, deadline=None)
@given(graphs(), seeds, seeds, st.integers(0, 3), st.lists(st.booleans(), min_size=14, max_size=14))
def test_what_is_not_permitted_is_not_crossed(spec, entities, relations, degree, permitted):
    graph, h = build(spec), dense_h(spec)
    entities, relations = rows(entities, h.shape[0]), rows(relations, h.shape[1])
    mask = np.array(permitted[: h.shape[1]], dtype=np.bool_)
    h[:, ~mask] = 0
    found = graph.expand(entities=entities, relations=relations, degree=degree, permitted=mask)
    assert set(found.relations.tolist()) == reached(h, entities, relations, degree)


@settings(max_examples=100, deadline=None)
@given(graphs())
def test_matrices_and_gathers_are_the_dense_ones(spec):
    graph, h = build(spec), dense_h(spec)
    stated = np.zeros((spec[1], h.shape[1]), dtype=np.int64)
    for passage, relation in spec[3]:
        stated[passage, relation] = 1
    check(graph, h, stated)


def check(graph: Incidence, h: np.ndarray, stated: np.ndarray) -> None:
    everything = [np.arange(n)[::-1] for n in (*h.shape, len(stated))]
    for matrix, dense, (indptr, indices) in (
        (graph.entity_relation_matrix, h, graph.relations_of_entities(everything[0])),
        (graph.entity_relation_matrix.T, h.T, graph.entities_of_relations(everything[1])),
        (graph.relation_passage_matrix, stated.T, graph.passages_of_relations(everything[1])),
        (graph.passage_relation_matrix, stated, graph.relations_of_passages(everything[2])),
    ):
        assert matrix.shape == dense.shape
        assert (matrix.toarray() == dense).all()
        gathered = [sorted(part.tolist()) for part in np.split(indices, indptr[1:-1])]
        expected = [np.flatnonzero(row).tolist() for row in dense[::-1]]
        assert gathered[: len(dense)] == expected
    assert graph.visible.tolist() == stated.any(axis=0).tolist()
    assert graph.entity_degree.tolist() == h.sum(axis=1).tolist()
    assert graph.relation_frequency.tolist() == stated.sum(axis=0).tolist()
    assert graph.passage_degree.tolist() == stated.sum(axis=1).tolist()
    named = (h @ stated.T > 0).sum(axis=1)
    assert graph.entity_frequency(everything[0]).tolist() == named[::-1].tolist()


@settings(max_examples=150, deadline=None)
@given(graphs(), st.data())
def test_changes_are_what_a_rebuild_gives(spec, data):
    n_entities, n_passages, ends, pairs = spec
    graph = build(spec)
    for _ in range(3):
        entity = st.integers(0, n_entities + 1)
        more = data.draw(st.lists(st.tuples(entity, entity), max_size=3))
        n_entities += 2
        ends = ends + more
        gone = data.draw(st.sets(st.integers(0, n_passages - 1), max_size=2)) if n_passages else ()
        n_passages += 1
        pair = st.tuples(st.integers(0, n_passages - 1), st.integers(0, max(len(ends) - 1, 0)))
        new = data.draw(st.lists(pair, max_size=6)) if ends else []
        pairs = [pair for pair in pairs if pair[0] not in gone] + new
        unchanged = graph.relation_frequency.tolist()
        changed = graph.with_changes(
            n_entities=n_entities,
            subjects=[s for s, _ in more],
            objects=[o for _, o in more],
            n_passages=n_passages,
            passages=[p for p, _ in new],
            relations=[r for _, r in new],
            removed=sorted(gone),
        )
        assert graph.relation_frequency.tolist() == unchanged
        graph = changed
        spec = (n_entities, n_passages, ends, pairs)
        stated = np.zeros((n_passages, len(ends)), dtype=np.int64)
        for passage, relation in pairs:
            stated[passage, relation] = 1
        check(graph, dense_h(spec), stated)


def star(n: int, **kwargs) -> Incidence:
    """Entity 0 tied to each of n others; passage 0 states all."""
    leaves = np.arange(n)
    return Incidence.build(
        n + 1, np.zeros(n), leaves + 1, passages=np.zeros(n), relations=leaves, n_passages=1
    )


def test_a_hub_is_capped_by_relevance_with_ties_by_row():
    found = star(6).expand(
        entities=[0],
        degree=0,
        max_per_entity=3,
        relevance=np.array([0.5, 0.1, 0.5, 0.9, 0.5, 0.0]),
    )
    assert found.relations.tolist() == [0, 2, 3]
    assert (found.capped_entities, found.cut_at_entities) == (1, 3)


def test_ties_follow_ids_where_rows_do_not():
    graph = star(4)
    ranks = np.array([3, 2, 1, 0], dtype=np.int32)
    graph = graph.with_changes(relation_ranks=lambda rows: ranks[rows])
    assert graph.expand(entities=[0], degree=0, max_per_entity=2).relations.tolist() == [3, 2]
    assert graph.expand(entities=[0], degree=0, max_relations=1).relations.tolist() == [3]


def test_relevance_may_be_computed_for_the_rows_that_need_it():
    asked = []

    def relevance(rows):
        asked.append(rows.tolist())
        return rows.astype(np.float64)

    found = star(5).expand(entities=[0], degree=0, max_relations=2, relevance=relevance)
    assert found.relations.tolist() == [3, 4]
    assert found.cut_by_total == 3
    assert asked == [[0, 1, 2, 3, 4]]


def test_a_relevance_that_is_no_number_is_the_lowest():
    relevance = np.array([np.nan, 0.1, np.nan, -5.0])
    found = star(4).expand(entities=[0], degree=0, max_per_entity=3, relevance=relevance)
    assert found.relations.tolist() == [0, 1, 3]


def test_the_total_keeps_the_relevant_ones_of_every_degree():
    chain = Incidence.build(
        4, [0, 1, 2], [1, 2, 3], passages=[0, 0, 0], relations=[0, 1, 2], n_passages=1
    )
    far = np.array([0.1, 0.2, 0.9])
    found = chain.expand(relations=[0], degree=2, max_relations=2, relevance=far)
    assert found.relations.tolist() == [1, 2]
    assert found.degrees.tolist() == [1, 2]
    assert chain.expand(relations=[0], degree=2, max_relations=2).relations.tolist() == [0, 1]


def test_a_hub_is_capped_on_the_permitted_relations_only():
    mask = np.array([False, True, True, False])
    found = star(4).expand(entities=[0], degree=0, permitted=mask, max_per_entity=2)
    assert found.relations.tolist() == [1, 2]
    assert found.cut_at_entities == 0


def test_permitted_passages_become_permitted_relations():
    graph = Incidence.build(
        2, [0, 0], [1, 1], passages=[0, 1, 1], relations=[0, 0, 1], n_passages=2
    )
    assert graph.permitted_relations(np.array([True, False])).tolist() == [True, False]
    assert graph.permitted_relations(np.array([False, True])).tolist() == [True, True]


@pytest.mark.parametrize(
    ("kwargs", "error", "words"),
    [
        ({"degree": -1}, GraphRAGValueError, "degree is -1"),
        ({"degree": 1.5}, GraphRAGTypeError, "1.5"),
        ({"degree": True}, GraphRAGTypeError, "True"),
        ({"max_per_entity": 0}, GraphRAGValueError, "max_per_entity is 0"),
        ({"max_relations": 0}, GraphRAGValueError, "max_relations is 0"),
        ({"entities": [9]}, GraphRAGValueError, "entity row 9"),
        ({"relations": [-1]}, GraphRAGValueError, "-1, which stands for an unknown id"),
        ({"permitted": np.ones(3, dtype=bool)}, GraphRAGValueError, r"permitted has shape \(3,\)"),
        ({"relevance": np.ones(3)}, GraphRAGValueError, "relevance has shape"),
        (
            {"relevance": lambda rows: np.ones(1), "entities": [0], "max_relations": 1},
            GraphRAGValueError,
            "relevance returned shape",
        ),
    ],
)
def test_bad_arguments_are_named(kwargs, error, words):
    with pytest.raises(error, match=words):
        star(2).expand(**kwargs)


def test_building_checks_its_rows():
    with pytest.raises(GraphRAGValueError, match="entity row 5"):
        Incidence.build(2, [0], [5], passages=[0], relations=[0], n_passages=1)
    with pytest.raises(GraphRAGValueError, match="1 subjects with 0 objects"):
        Incidence.build(2, [0], [], passages=[], relations=[], n_passages=1)
