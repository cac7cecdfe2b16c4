"""Candidates cover the ranked passages, in their order, as far as there is room."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent / "ranking"))
from graphs import NOTHING, PASSAGES, World, scored

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.graph.candidates import choose_candidates
from llama_index_graph_rag.graph.ranking import Ranked, VectorsWanted, get_ranking


@pytest.fixture
def world() -> World:
    return World.build()


def choose(world: World, ids, **options):
    rows = world.graph.passage_rows(ids)
    ranked = Ranked(scored(rows, np.linspace(1, 0.5, len(rows))), NOTHING)
    recall = world.recall("Who?")
    chosen = world.run(choose_candidates(world.graph, recall, ranked, **options))
    assert chosen.dtype == np.int32
    assert len(np.unique(chosen)) == len(chosen)
    return chosen.tolist(), recall


def holder(world: World, row: int) -> str:
    return world.graph.passage_ids(world.graph.incidence.passages_of_relations([row])[1])[0]


def test_one_relation_a_passage_in_the_order_of_the_ranking(world):
    order = ["daniel", "euler", "fish"]
    chosen, recall = choose(world, order, detailed_passages=0)
    assert [holder(world, row) for row in chosen] == order
    for row in chosen:
        (passage,) = world.graph.incidence.passages_of_relations([row])[1]
        others = world.graph.incidence.relations_of_passages([passage])[1]
        cosines = world.vectors("relation", world.graph.relation_ids(others)) @ recall.query_vector
        assert row == others[np.argmax(cosines)]


def test_first_passages_show_more_while_there_is_room(world):
    order = ["daniel", "euler", "lagrange"]
    options = {"detailed_passages": 1, "relations_per_detailed_passage": 2}
    chosen, _ = choose(world, order, **options)
    assert [holder(world, row) for row in chosen] == ["daniel", "daniel", "euler", "lagrange"]
    chosen, _ = choose(world, order, limit=3, **options)
    assert [holder(world, row) for row in chosen] == ["daniel", "daniel", "euler"]


def test_a_relation_that_two_passages_state_is_shown_once(world):
    world = World.build({**PASSAGES, "copy": PASSAGES["basel"]})
    chosen, _ = choose(world, ["basel", "copy", "fish"])
    assert len(chosen) == 2


def test_asks_once_for_relation_vectors_and_for_nothing_else(world):
    choose(world, ["daniel", "euler"])
    (request,) = world.asked
    assert isinstance(request, VectorsWanted)
    assert len(request.entities) == 0
    assert len(request.relations) == 4


def test_nothing_ranked_gives_nothing_and_asks_nothing(world):
    assert choose(world, [])[0] == []
    assert world.asked == []


def test_after_a_ranking_every_passage_is_covered(world):
    recall = world.recall("Who taught Lagrange's teacher?", names=["Lagrange"])
    ranked = world.run(get_ranking().rank(world.graph, recall))
    chosen = world.run(choose_candidates(world.graph, recall, ranked))
    covered = world.graph.incidence.passages_of_relations(chosen)[1]
    assert set(world.graph.passage_ids(covered)) == set(PASSAGES)


@pytest.mark.parametrize(
    "wrong",
    [{"limit": 0}, {"detailed_passages": -1}, {"relations_per_detailed_passage": 0}],
)
def test_numbers_out_of_range_are_refused(world, wrong):
    with pytest.raises(GraphRAGValueError, match=next(iter(wrong))):
        choose(world, ["daniel"], **wrong)
