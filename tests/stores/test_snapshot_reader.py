from __future__ import annotations

import time

import numpy as np
import pytest
from llama_index.core.schema import TextNode

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.graph.snapshot import (
    EntityKey,
    GraphSnapshot,
    PassageKey,
    RelationKey,
)
from llama_index_graph_rag.identity import entity_id
from llama_index_graph_rag.stores.base import StoredPassage
from llama_index_graph_rag.stores.snapshot_reader import EVIDENCE_PER_FACT, SnapshotReader
from llama_index_graph_rag.testing import toy_graphs
from llama_index_graph_rag.testing.graph_reader import GraphReaderSuite
from llama_index_graph_rag.testing.toy_graphs import ToyGraph, toy_graph
from llama_index_graph_rag.triplets import Mention, Triplet


class MemoryReader(SnapshotReader):
    """Passages in a dict; counts its reads."""

    def __init__(self, toy: ToyGraph, vectors=None) -> None:
        self.passages = {
            passage.id: StoredPassage(
                TextNode(id_=passage.id, text=passage.text),
                tuple(t.id for t in passage.triplets),
                passage.mentions,
            )
            for passage in toy.passages
        }
        self.vectors = vectors or {}
        self.reads: list[str] = []
        self.graph = GraphSnapshot.empty().with_changes(
            entities=[EntityKey(entity_id(name), name) for name in toy.entities],
            relations=[RelationKey(t.id, t.subject_id, t.object_id) for t in toy.triplets],
            passages=[
                PassageKey(id, "d", passage.relation_ids, "", "")
                for id, passage in self.passages.items()
            ],
        )

    def snapshot(self):
        return self.graph

    def get_passages(self, ids):
        self.reads.append("passages")
        return [self.passages[id] for id in ids if id in self.passages]

    def get_vectors(self, *, entities=(), relations=()):
        self.reads.append("vectors")
        return {}, {id: self.vectors[id] for id in relations if id in self.vectors}


class TestCompliance(GraphReaderSuite):
    @pytest.fixture(params=["delta", "merged"])
    def load_graph(self, request):
        def load(toy: ToyGraph) -> MemoryReader:
            reader = MemoryReader(toy)
            if request.param == "merged":
                reader.graph = reader.graph.merged()
            return reader

        return load


def id_of(name: str) -> str:
    return entity_id(name)


def test_walking_reads_nothing():
    reader = MemoryReader(toy_graphs.HUB)
    reader.match_entities(["hub"])
    reader.neighbors([id_of("hub")])
    reader.links([id_of("hub")], [id_of("spoke 001")])
    assert reader.reads == []
    reader.facts([(id_of("hub"), id_of("spoke 001"))])
    assert reader.reads == ["passages"]


def test_names_match_in_any_spelling_and_by_says_which():
    reader = MemoryReader(toy_graphs.ONE_EDGE)
    euler = reader.match_entities(["  EULER. "])[0][0]
    assert (euler.id, euler.name) == (id_of("Euler"), "Euler")
    assert reader.match_entities(["euler", euler.id], by="name") == [[euler], []]
    assert reader.match_entities(["euler", euler.id], by="id") == [[], [euler]]
    with pytest.raises(GraphRAGValueError, match="by='label'"):
        reader.match_entities(["euler"], by="label")


@pytest.mark.parametrize(
    ("method", "args", "limit"),
    [
        ("match_entities", (["a"],), "limit"),
        ("neighbors", (["a"],), "limit_per_entity"),
        ("links", (["a"], ["a"]), "limit"),
        ("facts", ([("a", "a")],), "per_pair"),
        ("paths", (["a"],), "limit"),
        ("paths", (["a"],), "max_depth"),
    ],
)
def test_a_limit_of_nothing_is_named(method, args, limit):
    with pytest.raises(GraphRAGValueError, match=f"{limit} is 0"):
        getattr(MemoryReader(toy_graphs.ONE_EDGE), method)(*args, **{limit: 0})


def test_what_no_passage_holds_any_more_is_nowhere():
    reader = MemoryReader(toy_graphs.SHARED)
    reader.graph = reader.graph.with_changes(removed_passages=["p2"])
    assert reader.match_entities(["C"]) == [[]]
    assert reader.neighbors([id_of("C")]) == {}
    assert [n.entity.name for n in reader.neighbors([id_of("B")])[id_of("B")]] == ["A"]
    assert reader.facts([(id_of("B"), id_of("C"))]) == []
    facts = reader.facts([(id_of("A"), id_of("B"))])
    assert [(fact.predicate, fact.count) for fact in facts] == [("admires", 1), ("knows", 1)]


def test_facts_count_their_passages_and_quote_them():
    reader = MemoryReader(toy_graphs.SHARED)
    facts = reader.facts([(id_of("A"), id_of("B"))])
    assert [(fact.predicate, fact.count) for fact in facts] == [("knows", 2), ("admires", 1)]
    assert {(e.passage_id, e.sentence) for e in facts[0].evidence} == {
        ("p1", "A knows B."),
        ("p2", "A knows B."),
    }


def test_a_sentence_that_is_not_known_is_empty_and_much_evidence_is_cut():
    toy = toy_graph("many", *((f"p{n}", [("A", "knows", "B")]) for n in range(9)))
    reader = MemoryReader(toy)
    t = Triplet("A", "knows", "B")
    for id, passage in reader.passages.items():
        reader.passages[id] = StoredPassage(passage.node, (t.id,), (Mention(t),))
    (fact,) = reader.facts([(id_of("A"), id_of("B"))])
    assert fact.count == 9
    assert [e.sentence for e in fact.evidence] == [""] * EVIDENCE_PER_FACT


def test_the_nearest_to_the_question_comes_first():
    triplets = toy_graphs.PARALLEL.triplets
    vectors = {
        t.id: np.array(v, dtype=np.float32) for t, v in zip(triplets, ([1, 0], [3, 4], [1, 1]))
    }
    reader = MemoryReader(toy_graphs.PARALLEL, vectors)
    pair = (id_of("A"), id_of("B"))
    facts = reader.facts([pair], query_embedding=[0.0, 2.0])
    assert [fact.predicate for fact in facts] == ["employs", "advises", "zitiert"]
    assert [fact.similarity for fact in facts] == [pytest.approx(0.8), pytest.approx(0.0), None]
    assert reader.reads == ["vectors", "passages"]
    (best,) = reader.facts([pair], per_pair=1, query_embedding=[0.0, 2.0])
    assert best.predicate == "employs"
    with pytest.raises(GraphRAGValueError, match=r"shape \(3,\)"):
        reader.facts([pair], query_embedding=[0.0, 2.0, 1.0])


def test_a_fact_whose_passage_is_gone_is_left_out_and_said(caplog):
    reader = MemoryReader(toy_graphs.SHARED)
    del reader.passages["p1"]
    facts = reader.facts([(id_of("A"), id_of("B"))])
    assert [(fact.predicate, len(fact.evidence)) for fact in facts] == [("knows", 1)]
    assert "1 facts left out" in caplog.text


def test_the_schema_names_counts_and_predicates():
    text = MemoryReader(toy_graphs.SHARED).schema()
    assert "3 entities" in text
    assert "3 relations" in text
    assert "'knows', 'admires'" in text


def test_a_hub_of_25_000_relations_is_walked_at_once():
    toy = toy_graph("large", *((f"p{k}", spokes(k)) for k in range(25)))
    reader = MemoryReader(toy)
    start = time.perf_counter()
    around = reader.neighbors([id_of("hub")], limit_per_entity=10)
    links = reader.links([id_of("hub")], [id_of("spoke 7"), id_of("spoke 24999")])
    spent = time.perf_counter() - start
    assert [n.entity.name for n in around[id_of("hub")]][:3] == ["spoke 0", "spoke 1", "spoke 10"]
    assert len(links) == 2
    assert spent < 1.0


def spokes(k: int) -> list[tuple[str, str, str]]:
    return [("hub", "has", f"spoke {n}") for n in range(k * 1000, (k + 1) * 1000)]
