"""From chosen relations, a ranking and dense hits to passages."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_graph_rag.graph.ranking.base import Scored
from llama_index_graph_rag.graph.select import passages_of_relation, select_passages
from llama_index_graph_rag.graph.snapshot import (
    EntityKey,
    GraphSnapshot,
    PassageKey,
    RelationKey,
)
from llama_index_graph_rag.identity import entity_id, relation_id

PASSAGES = 8
# Relation k is stated by the passages in STATED[k]; relation 0 by all.
STATED = [range(PASSAGES), (0, 1), (2,), (3, 4, 5), ()]


def graph_of(stated) -> GraphSnapshot:
    ids = [relation_id(f"s{k}", "r", f"o{k}") for k in range(len(stated))]
    names = [f"{kind}{k}" for kind in "so" for k in range(len(stated))]
    graph = GraphSnapshot.empty().with_changes(
        entities=[EntityKey(entity_id(name), name) for name in names],
        relations=[
            RelationKey(id, entity_id(f"s{k}"), entity_id(f"o{k}")) for k, id in enumerate(ids)
        ],
        passages=[
            PassageKey(f"p{n}", "", tuple(id for id, held in zip(ids, stated) if n in held), "", "")
            for n in range(PASSAGES)
        ],
    )
    assert list(graph.relation_rows(ids)) == list(range(len(ids)))
    assert list(graph.passage_rows([f"p{n}" for n in range(PASSAGES)])) == list(range(PASSAGES))
    return graph


GRAPH = graph_of(STATED)
NOTHING = Scored(np.array([], dtype=np.int32), np.array([]))


def scored(*pairs: tuple[int, float]) -> Scored:
    return Scored(
        np.array([row for row, _ in pairs], dtype=np.int32), np.array([s for _, s in pairs])
    )


def select(**options):
    defaults = {"chosen": [], "ranked": NOTHING, "dense": NOTHING, "relevant": [], "top_k": 5}
    return select_passages(GRAPH, **{**defaults, **options})


def test_chosen_relations_come_first_then_the_ranking_then_dense_ones():
    found = select(
        chosen=[2, 1],
        ranked=scored((7, 0.9), (1, 0.5), (0, 0.1)),
        dense=scored((6, 0.8), (7, 0.7)),
    )
    assert [(item.row, item.origin) for item in found] == [
        (2, "chosen"),
        (1, "chosen"),
        (0, "chosen"),
        (7, "ranking"),
        (6, "dense"),
    ]


def test_a_relation_that_many_share_does_not_flood():
    found = select(chosen=[0, 2], ranked=scored((6, 0.9), (4, 0.5)), per_relation=2)
    assert [item.row for item in found] == [6, 4, 2]


def test_a_relation_that_nobody_holds_brings_nothing():
    assert select(chosen=[4]) == []


def test_dense_fill_can_be_turned_off():
    assert select(dense=scored((1, 0.9)), dense_fill=False) == []
    assert [item.row for item in select(dense=scored((1, 0.9)))] == [1]


def test_only_permitted_passages():
    permitted = np.zeros(PASSAGES, dtype=np.bool_)
    permitted[[3, 5]] = True
    found = select(
        chosen=[3, 0],
        ranked=scored((4, 1.0), (5, 0.5)),
        dense=scored((7, 0.9)),
        permitted=permitted,
    )
    assert [item.row for item in found] == [5, 3]


def test_what_brought_a_passage_is_named():
    found = select(chosen=[1], relevant=[3, 0], ranked=scored((0, 1.0), (3, 0.5)))
    assert {item.row: item.relations for item in found} == {0: (1, 0), 1: (1, 0), 3: (3, 0)}


def test_passages_of_a_relation_are_in_the_order_of_places_then_ids():
    rest = sorted((3, 5), key=lambda row: GRAPH.passage_ranks[row])
    assert passages_of_relation(GRAPH, 3, {4: 0}, limit=3) == [4, *rest]
    assert passages_of_relation(GRAPH, 3, {4: 0}, limit=1) == [4]


HITS = st.dictionaries(
    st.integers(0, PASSAGES - 1), st.floats(-1, 1, allow_nan=False), max_size=PASSAGES
).map(lambda hits: scored(*sorted(hits.items(), key=lambda item: -item[1])))


@given(
    chosen=st.lists(st.integers(0, 4), unique=True, max_size=4),
    ranked=HITS,
    dense=HITS,
    top_k=st.integers(1, 10),
    per_relation=st.integers(1, 4),
)
def test_scores_strictly_decrease_within_one_and_no_passage_comes_twice(
    chosen, ranked, dense, top_k, per_relation
):
    found = select(
        chosen=chosen, ranked=ranked, dense=dense, top_k=top_k, per_relation=per_relation
    )
    scores = [item.score for item in found]
    assert all(0 < score <= 1 for score in scores)
    assert all(before > after for before, after in pairwise(scores))
    rows = [item.row for item in found]
    assert len(set(rows)) == len(rows) <= top_k
    everything = {row for k in chosen for row in STATED[k]} | {
        *ranked.rows.tolist(),
        *dense.rows.tolist(),
    }
    assert set(rows) <= everything
    if top_k >= PASSAGES and per_relation >= PASSAGES:
        assert set(rows) == everything


def test_scores_are_those_of_the_ranking():
    found = select(ranked=scored((1, 4.0), (2, 2.0), (3, 1.0)))
    assert [item.score for item in found] == pytest.approx([1.0, 0.5, 0.25], rel=1e-4)
