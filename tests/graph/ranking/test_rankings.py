"""What every ranking keeps to, and what each adds."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import NOTHING, PASSAGES, World, scored
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_index_graph_rag.errors import GraphRAGError, GraphRAGTypeError, GraphRAGValueError
from llama_index_graph_rag.graph.ranking import (
    RANKINGS,
    HopWalk,
    PassagesWanted,
    PersonalizedPageRank,
    Ranked,
    VectorsFound,
    VectorsWanted,
    Walk,
    get_ranking,
)
from llama_index_graph_rag.graph.ranking.restart import above_floor, name_anchor, passage_reset

GRAPH_RANKINGS = ["hop_walk", "pagerank"]


@pytest.fixture
def world() -> World:
    return World.build()


def check_sound(world: World, ranked: Ranked) -> None:
    for scores in (ranked.passages, ranked.relations):
        assert scores.rows.dtype == np.int32
        assert scores.scores.dtype == np.float32
        assert len(scores.rows) == len(scores.scores) == len(np.unique(scores.rows))
        assert np.isfinite(scores.scores).all()
        assert (np.diff(scores.scores) <= 0).all()


@pytest.mark.parametrize("name", RANKINGS)
def test_order_scores_and_types(world, name):
    ranked = world.run(get_ranking(name).rank(world.graph, world.recall("Who?", names=["Euler"])))
    check_sound(world, ranked)
    assert sorted(world.ids(ranked)) == sorted(PASSAGES)
    assert len(ranked.relations.rows) > 0


@pytest.mark.parametrize("name", RANKINGS)
def test_same_result_twice_and_from_several_threads_of_thought(world, name):
    ranking = get_ranking(name)
    recall = world.recall("Who taught Lagrange's teacher?", names=["Lagrange"])
    one, two = (ranking.rank(world.graph, recall) for _ in range(2))
    first, second = world.run(one), world.run(two)
    assert first.passages.rows.tolist() == second.passages.rows.tolist()
    assert first.passages.scores.tolist() == second.passages.scores.tolist()


@pytest.mark.parametrize("name", RANKINGS)
def test_rows_of_another_history_give_the_same_order(name):
    there, back = World.build(), World.build(dict(reversed(PASSAGES.items())))
    orders = [
        world.ids(world.run(get_ranking(name).rank(world.graph, world.recall("Who?"))))
        for world in (there, back)
    ]
    assert orders[0] == orders[1]


@pytest.mark.parametrize("name", RANKINGS)
def test_nothing_recalled_gives_nothing(world, name):
    recall = world.recall("Who?", relations=NOTHING, passages=NOTHING)
    ranked = world.run(get_ranking(name).rank(world.graph, recall))
    assert len(ranked.passages.rows) == 0
    check_sound(world, ranked)


@pytest.mark.parametrize("name", RANKINGS)
def test_empty_graph(name):
    world = World.build({})
    ranked = world.run(get_ranking(name).rank(world.graph, world.recall("Who?")))
    assert len(ranked.passages.rows) == len(ranked.relations.rows) == 0


@pytest.mark.parametrize("name", GRAPH_RANKINGS)
def test_entities_alone_are_enough(world, name):
    recall = world.recall("?", names=["Daniel Bernoulli"], relations=NOTHING, passages=NOTHING)
    ranked = world.run(PersonalizedPageRank().rank(world.graph, recall))
    assert world.ids(ranked)[0] == "daniel"
    check_sound(world, world.run(get_ranking(name).rank(world.graph, recall)))


@pytest.mark.parametrize("name", GRAPH_RANKINGS)
def test_passages_alone_are_enough(world, name):
    basel = scored(world.graph.passage_rows(["basel"]), [0.9])
    recall = world.recall("?", relations=NOTHING, passages=basel)
    ranked = world.run(PersonalizedPageRank().rank(world.graph, recall))
    assert world.ids(ranked)[0] == "basel"
    # The walk went on through the Rhine.
    assert "fish" in world.ids(ranked)
    check_sound(world, world.run(get_ranking(name).rank(world.graph, recall)))


@pytest.mark.parametrize("name", RANKINGS)
def test_only_permitted_passages(world, name):
    permitted = world.mask("euler", "fish", "daniel")
    everything = world.recall("Who?", names=["Basel"])
    keep = permitted[everything.passages.rows]
    allowed = scored(everything.passages.rows[keep], everything.passages.scores[keep])
    recall = world.recall("Who?", names=["Basel"], permitted=permitted, passages=allowed)
    world_answer = world.answer

    def filtered(request):
        answer = world_answer(request)
        if isinstance(request, PassagesWanted):
            answer = [
                scored(a.rows[permitted[a.rows]], a.scores[permitted[a.rows]]) for a in answer
            ]
        return answer

    world.answer = filtered
    ranked = world.run(get_ranking(name).rank(world.graph, recall))
    assert set(world.ids(ranked)) <= {"euler", "fish", "daniel"}
    assert world.ids(ranked)


def test_equal_mass_is_ordered_by_id():
    passages = {f"p{i}": [("hub", "has", f"leaf {i}")] for i in range(12)}
    world = World.build(passages)
    recall = world.recall("?", names=["hub"], relations=NOTHING, passages=NOTHING)
    ranked = world.run(PersonalizedPageRank(anchor_weight=0).rank(world.graph, recall))
    assert len(set(ranked.passages.scores.tolist())) == 1
    ranks = world.graph.passage_ranks[ranked.passages.rows]
    assert (np.diff(ranks) > 0).all()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_recall_gives_finite_ordered_scores(data):
    names = st.sampled_from("abcdefg")
    triplets = st.lists(st.tuples(names, st.sampled_from("xy"), names), max_size=4)
    world = World.build(data.draw(st.dictionaries(st.sampled_from("1234567"), triplets)))
    similarity = st.floats(-1, 1, width=32)

    def hits(n):
        rows = data.draw(st.lists(st.integers(0, n - 1), unique=True)) if n else []
        values = data.draw(st.lists(similarity, min_size=len(rows), max_size=len(rows)))
        return scored(rows, sorted(values, reverse=True))

    graph = world.graph
    recall = world.recall("?", relations=hits(graph.n_relations), passages=hits(graph.n_passages))
    for name in RANKINGS:
        check_sound(world, world.run(get_ranking(name).rank(graph, recall)))


def test_hop_walk_asks_once_for_vectors_and_once_for_passages(world):
    ranking = HopWalk(hop_passages=2, hop_relations=1, passage_top_k=4, hop_top_k=4)
    world.run(ranking.rank(world.graph, world.recall("Who?")))
    vectors, passages = world.asked
    assert isinstance(vectors, VectorsWanted)
    assert isinstance(passages, PassagesWanted)
    assert passages.vectors.shape == (2, 16)
    assert passages.vectors.dtype == np.float32
    assert passages.limit == 4
    np.testing.assert_allclose(np.linalg.norm(passages.vectors, axis=1), 1, atol=1e-5)


def test_hop_vector_is_what_the_question_leaves_open():
    world = World.build({"euler": [("Euler", "was taught by", "Bernoulli")]})
    ranking = HopWalk(novelty=0.5)
    recall = world.recall("Who taught Euler?")
    world.run(ranking.rank(world.graph, recall))
    (row,) = world.asked[0].relations
    question, relation = recall.query_vector, world.answer(world.asked[0]).relations[0]
    names = world.vectors(
        "entity", world.graph.entity_ids([world.graph.subjects[row], world.graph.objects[row]])
    )
    new = names[np.argmin(names @ question)]
    expected = question - (question @ relation) * relation + 0.5 * new
    hop = next(r for r in world.asked if isinstance(r, PassagesWanted)).vectors[0]
    np.testing.assert_allclose(hop, expected / np.linalg.norm(expected), atol=1e-5)


def test_hop_walk_without_vectors_in_the_store_is_the_first_walk(world):
    recall = world.recall("Who?", names=["Euler"])
    world_answer = world.answer

    def zeros(request):
        answer = world_answer(request)
        return VectorsFound(np.zeros_like(answer.entities), np.zeros_like(answer.relations))

    plain = world.run(PersonalizedPageRank().rank(world.graph, recall))
    world.answer = zeros
    ranked = world.run(HopWalk().rank(world.graph, recall))
    assert ranked.passages.rows.tolist() == plain.passages.rows.tolist()


def test_similarities_of_any_model_come_to_one_scale():
    wide, narrow = np.array([0.6, 0.4, 0.2]), np.array([0.9, 0.85, 0.8])
    np.testing.assert_allclose(above_floor(wide), above_floor(narrow))
    assert above_floor(np.array([1.0, 1.0])).tolist() == [0, 0]
    assert above_floor(np.array([])).tolist() == []


def test_anchor_prefers_passages_about_the_entity(world):
    anchor = name_anchor(world.graph, world.recall("?", names=["Daniel Bernoulli"]), 10)
    assert world.graph.passage_ids(anchor.rows)[0] == "daniel"
    assert set(world.graph.passage_ids(anchor.rows)) == {"daniel", "bernoulli"}


def test_anchored_passage_that_was_not_recalled_stands_at_the_floor():
    reset = passage_reset(
        4, scored([0, 1], [0.8, 0.2]), scored([2], [1.0]), sharpness=1.0, anchor_weight=0.0
    )
    assert reset[2] == reset[1] > reset[3] == 0
    assert reset.sum() == pytest.approx(1)


def test_registry_and_lookup():
    assert isinstance(get_ranking(), HopWalk)
    mine = PersonalizedPageRank(walk=Walk(steps=2))
    assert get_ranking(mine) is mine
    with pytest.raises(GraphRAGValueError, match="hop_walk"):
        get_ranking("best")
    with pytest.raises(GraphRAGTypeError):
        get_ranking(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"hop_passages": 0},
        {"novelty": -1.0},
        {"sharpness": float("nan")},
        {"entity_weight": 1.5},
        {"passage_top_k": 0},
    ],
)
def test_numbers_out_of_range_are_refused(wrong):
    with pytest.raises(GraphRAGError, match=next(iter(wrong))):
        HopWalk(**wrong)
