"""ConnectionRetriever over a graph in memory and over a store that is asked for every step."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core import MockEmbedding
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.graph_stores import SimplePropertyGraphStore
from llama_index.core.graph_stores.types import EntityNode, Relation
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import NodeRelationship, NodeWithScore, QueryBundle, TextNode
from llama_index.core.tools import RetrieverTool
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.event_handlers import BaseEventHandler

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError, StoreError
from llama_index_graph_rag.extractors.entities import LLMEntityExtractor
from llama_index_graph_rag.graph.connections import ConnectLimits
from llama_index_graph_rag.graph.snapshot import (
    EntityKey,
    GraphSnapshot,
    PassageKey,
    RelationKey,
)
from llama_index_graph_rag.identity import entity_id
from llama_index_graph_rag.retrievers.connection import ConnectionRetriever, connect_text
from llama_index_graph_rag.retrievers.walk import ReaderWalk, SnapshotWalk, search
from llama_index_graph_rag.steps import drive
from llama_index_graph_rag.stores.base import EntityRef, GraphReader, StoredPassage
from llama_index_graph_rag.stores.property_graph import PropertyGraphReader
from llama_index_graph_rag.stores.snapshot_reader import SnapshotReader
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM
from llama_index_graph_rag.testing.toy_graphs import HUB, SELF_LOOP, ToyGraph, toy_graph
from llama_index_graph_rag.trace import RetrievalTraceEvent


class MemoryReader(SnapshotReader):
    """A toy graph in memory."""

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
        self.graph = GraphSnapshot.empty().with_changes(
            entities=[EntityKey(entity_id(name), name) for name in toy.entities],
            relations=[RelationKey(t.id, t.subject_id, t.object_id) for t in toy.triplets],
            passages=[
                PassageKey(id_, "d", passage.relation_ids, "", "")
                for id_, passage in self.passages.items()
            ],
        )

    def snapshot(self):
        return self.graph

    def get_passages(self, ids):
        return [self.passages[id_] for id_ in ids if id_ in self.passages]

    def get_vectors(self, *, entities=(), relations=()):
        return {}, {id_: self.vectors[id_] for id_ in relations if id_ in self.vectors}


class AskedReader(GraphReader):
    """The same graph behind a contract without a snapshot; counts what it is asked."""

    def __init__(self, toy: ToyGraph, vectors=None) -> None:
        self.memory = MemoryReader(toy, vectors)
        self.calls: Counter[str] = Counter()
        self.meanings: dict[str, list[str]] = {}

    def match_entities(self, names, *, by=None, limit=5):
        self.calls["match"] += 1
        return [
            [
                ref
                for meant in self.memory.match_entities(self.meanings.get(name, [name]))
                for ref in meant
            ][:limit]
            for name in names
        ]

    def neighbors(self, entity_ids, *, limit_per_entity=100):
        self.calls["neighbors"] += 1
        return self.memory.neighbors(entity_ids, limit_per_entity=limit_per_entity)

    def links(self, left_ids, right_ids, *, limit=10_000):
        self.calls["links"] += 1
        return self.memory.links(left_ids, right_ids, limit=limit)

    def facts(self, pairs, *, per_pair=5, query_embedding=None):
        self.calls["facts"] += 1
        return self.memory.facts(pairs, per_pair=per_pair, query_embedding=query_embedding)

    def schema(self):
        return ""


class Passages(BaseRetriever):
    """Another retriever: always the same passages."""

    def __init__(self, *ids):
        self.ids = ids
        super().__init__()

    def _retrieve(self, query_bundle):
        return [
            NodeWithScore(node=TextNode(id_=i, text=f"text of {i}"), score=0.5) for i in self.ids
        ]


def edges_graph(edges, n_passages=1):
    return toy_graph(
        "edges",
        *(
            (f"p{i}", [(f"e{a:02d}", "joins", f"e{b:02d}") for a, b in edges[i::n_passages]])
            for i in range(n_passages)
        ),
    )


STORY = toy_graph(
    "story",
    ("p1", [("Ann", "knows", "Ben"), ("Ann", "lives in", "Basel")]),
    ("p2", [("Cleo", "taught", "Ben"), ("Ben", "admired", "Cleo")]),
    ("p3", [("Dora", "likes", "tea")]),
)
QUESTION = "How are Ann and Cleo connected?"


def retriever_of(toy, *, asked=False, **options):
    if not asked:
        return ConnectionRetriever(MemoryReader(toy), **options)
    options.setdefault("entity_extractor", None)
    return ConnectionRetriever(AskedReader(toy), **options)


# --- one rule for memory and stores -------------------------------------------------------------


def seen(walk, connections):
    """A result without rows."""

    def named(edges):
        sources, targets = walk.refs(edges.sources.tolist()), walk.refs(edges.targets.tolist())
        return sorted(
            zip([r.name for r in sources], [r.name for r in targets], edges.counts.tolist())
        )

    return (
        [(c.left, c.right, [named(layer) for layer in c.layers]) for c in connections.found],
        connections.unconnected,
        connections.stages,
        connections.nodes,
        connections.full_checks,
    )


def both_walks(toy, names, limits=None):
    results = []
    reader = AskedReader(toy)
    matched = reader.memory.match_entities(names)
    if not all(matched) or not matched:
        return None
    for walk in (SnapshotWalk(reader.memory.graph), ReaderWalk(reader, Counter())):
        found = drive(search(walk, matched, limits or ConnectLimits()))
        results.append(seen(walk, found))
    assert results[0] == results[1]
    return results[0]


graphs = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(graphs, st.integers(2, 4))
def test_memory_and_store_equal_networkx(edges, k):
    reference = nx.Graph([(f"e{a:02d}", f"e{b:02d}") for a, b in edges])
    names = sorted(reference)[:k]
    result = both_walks(edges_graph(edges), names)
    if result is None or len(names) < 2:
        return
    found = {(left, right): layers for left, right, layers in result[0]}
    for i, one in enumerate(names):
        for j in range(i + 1, len(names)):
            if not nx.has_path(reference, one, names[j]):
                assert (i, j) not in found
                continue
            paths = list(nx.all_shortest_paths(reference, one, names[j]))
            if len(paths[0]) > 8:
                assert (i, j) not in found
                continue
            for place, layer in enumerate(found[i, j]):
                steps = {(path[place], path[place + 1]) for path in paths}
                assert {(a, b) for a, b, _ in layer} == steps


@settings(max_examples=60, deadline=None)
@given(graphs, *[st.integers(1, 5)] * 4, st.integers(2, 4))
def test_memory_and_store_cut_alike(edges, neighbors, new_nodes, frontier, links, k):
    limits = ConnectLimits(neighbors=neighbors, new_nodes=new_nodes, frontier=frontier, links=links)
    toy = edges_graph(edges)
    both_walks(toy, sorted(toy.entities)[:k], limits)


def property_graph_reader(request, toy):
    pytest.importorskip("llama_index_graph_rag.stores.property_graph")
    from llama_index.core.graph_stores import EntityNode, Relation, SimplePropertyGraphStore

    from llama_index_graph_rag.stores.property_graph import PropertyGraphReader

    store = SimplePropertyGraphStore()
    store.upsert_nodes([EntityNode(name=name) for name in toy.entities])
    store.upsert_relations(
        [Relation(label=t.predicate, source_id=t.subject, target_id=t.object) for t in toy.triplets]
    )
    return PropertyGraphReader(store)


def hugegraph_reader(request, toy):
    from llama_index_graph_rag.stores.hugegraph import HugeGraphStore

    store = HugeGraphStore(request.getfixturevalue("hugegraph_url"))
    store.add_triplets(toy.triplets)
    return store


@pytest.mark.parametrize(
    "make",
    [
        lambda request, toy: MemoryReader(toy),
        lambda request, toy: AskedReader(toy),
        property_graph_reader,
        hugegraph_reader,
    ],
    ids=["memory", "asked", "property graph", "hugegraph"],
)
def test_every_store_equals_networkx(make, request):
    random = Random(5)
    edges = [(random.randrange(24), random.randrange(24)) for _ in range(30)]
    toy = edges_graph(edges)
    reference = nx.Graph([(f"e{a:02d}", f"e{b:02d}") for a, b in edges])
    retriever = ConnectionRetriever(
        make(request, toy), entity_extractor=None, mode="paths", max_paths=1_000
    )
    for _ in range(8):
        pair = random.sample(sorted(reference), 2)
        nodes, trace = retriever.connect(pair)
        if not nx.has_path(reference, *pair):
            assert trace.gaps[0].exhausted
            continue
        expected = list(nx.all_shortest_paths(reference, *pair))
        if len(expected[0]) > 8:
            assert trace.gaps
            continue
        assert sorted(node.node.metadata["entities"] for node in nodes) == sorted(expected)


@pytest.mark.parametrize("length", range(1, 9))
def test_at_most_ten_calls_at_every_distance(length):
    chain = edges_graph([(i, i + 1) for i in range(length)])
    names = ["e00", f"e{length:02d}"]
    retriever = retriever_of(chain, asked=True)
    nodes, trace = retriever.connect(names)
    calls = retriever._query.reader.calls
    assert calls.total() <= 10
    assert calls == Counter({key.split(".")[1]: n for key, n in trace.calls.items()})
    assert calls["neighbors"] <= 4
    if length == 8:
        assert (trace.gaps[0].rounds, trace.gaps[0].exhausted) == (3, False)
        assert (trace.gaps[0].left_seen, trace.gaps[0].right_seen) == (4, 4)
        assert [n.node.metadata["kind"] for n in nodes] == ["entity", "entity"]
    else:
        assert trace.connections[0].length == length
        path = nodes[0].node.metadata["entities"]
        assert path == [f"e{i:02d}" for i in range(length + 1)]


def test_memory_is_walked_without_a_call():
    nodes, trace = retriever_of(STORY).retrieve_with_trace(QUESTION)
    assert nodes
    assert set(trace.calls) == {"reader.match", "reader.facts"}


def test_several_names_are_checked_in_one_call_a_round():
    star = edges_graph([(0, 1), (0, 2), (0, 3), (0, 4)])
    retriever = retriever_of(star, asked=True, mode="paths")
    _, trace = retriever.connect(["e01", "e02", "e03", "e04"])
    assert len(trace.connections) == 6
    assert (trace.calls["reader.links"], trace.calls["reader.neighbors"]) == (1, 1)


# --- documents ----------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [False, True])
async def test_documents(asked):
    retriever = retriever_of(
        STORY, asked=asked, **({"entity_extractor": lambda q: ["Ann", "Cleo"]} if asked else {})
    )
    nodes = retriever.retrieve(f"\n {QUESTION} \n")
    path, ann, cleo = nodes
    assert path.text == (
        "Ann -[knows]-> Ben <-[taught]- Cleo\n"
        '- Ann knows Ben. "Ann knows Ben." [p1]\n'
        '- Ben admired Cleo. "Ben admired Cleo." [p2]\n'
        '- Cleo taught Ben. "Cleo taught Ben." [p2]'
    ).replace("<-[taught]- Cleo", "-[admired]-> Cleo")
    assert ann.text.splitlines() == [
        "Ann",
        '- Ann lives in Basel. "Ann lives in Basel." [p1]',
        '- Ann knows Ben. "Ann knows Ben." [p1]',
    ]
    assert cleo.text.splitlines()[0] == "Cleo"
    assert [node.score for node in nodes] == [1.0, pytest.approx(2 / 3), pytest.approx(1 / 3)]
    assert path.node.metadata["passage_ids"] == ["p1", "p2"]
    children = path.node.relationships[NodeRelationship.CHILD]
    assert [child.node_id for child in children] == ["p1", "p2"]
    assert path.node.ref_doc_id == "p1"
    assert path.relations[0].text == "Ann knows Ben"
    assert path.relations[0].id == STORY.triplets[0].id
    for node in nodes:
        json.dumps(node.node.metadata)
        json.dumps(node.model_dump(mode="json"))
    again = await retriever.aretrieve(QUESTION)
    assert [(n.node_id, n.text, n.score) for n in again] == [
        (n.node_id, n.text, n.score) for n in nodes
    ]
    assert all(a is not b and a.node is not b.node for a, b in zip(again, nodes))


@pytest.mark.parametrize(
    ("mode", "kinds"),
    [("both", ["path", "entity", "entity"]), ("paths", ["path"]), ("entities", ["entity"] * 2)],
)
def test_modes(mode, kinds):
    nodes = retriever_of(STORY, mode=mode).retrieve(QUESTION)
    assert [node.node.metadata["kind"] for node in nodes] == kinds


def test_passages_mode_returns_the_original_passages():
    nodes = retriever_of(STORY, mode="passages").retrieve(QUESTION)
    assert [node.node_id for node in nodes] == ["p1", "p2"]
    assert nodes[0].node.hash == MemoryReader(STORY).passages["p1"].node.hash
    assert [use.text for use in nodes[0].relations] == ["Ann knows Ben"]
    alone = retriever_of(STORY, mode="passages").retrieve("Who is Dora?")
    assert [node.node_id for node in alone] == ["p3"]


def test_where_no_sentence_is_known_the_passage_stands_in():
    class WithoutSentences(MemoryReader):
        def __init__(self, toy):
            super().__init__(toy)
            for id_, p in self.passages.items():
                mentions = tuple(type(m)(m.triplet) for m in p.mentions)
                self.passages[id_] = StoredPassage(p.node, p.relation_ids, mentions)

    nodes = ConnectionRetriever(WithoutSentences(STORY), mode="paths").retrieve(QUESTION)
    assert (
        nodes[0].text.splitlines()[1]
        == '- Ann knows Ben. "Ann knows Ben. Ann lives in Basel." [p1]'
    )
    assert nodes[0].text.count("Ben admired Cleo.") == 2


def test_pruning_is_recorded_and_bounded():
    layers = [1, 2, 3, 3, 1]
    starts = [sum(layers[:i]) for i in range(6)]
    edges = [
        (a, b)
        for i in range(4)
        for a in range(starts[i], starts[i + 1])
        for b in range(starts[i + 1], starts[i + 2] if i < 3 else 10)
    ]
    nodes, trace = retriever_of(edges_graph(edges)).connect(["e00", "e09"])
    paths = [node for node in nodes if node.node.metadata["kind"] == "path"]
    assert len(paths) == 5
    assert {name for path in paths for name in path.node.metadata["entities"]} == {
        f"e{i:02d}" for i in range(10)
    }
    assert trace.connections[0].n_paths == 18
    assert "18 shortest paths pruned to 5" in trace.dropped
    few, _ = retriever_of(edges_graph(edges), max_relations=10, mode="paths").connect(
        ["e00", "e09"]
    )
    shown = {
        frozenset(e) for n in few for e in zip(*[n.node.metadata["entities"][i:] for i in (0, 1)])
    }
    assert len(shown) <= 10


def test_a_hub_is_cut_and_said():
    nodes, trace = retriever_of(HUB, mode="entities", similarity_top_k=3).retrieve_with_trace(
        "hub?"
    )
    assert len(nodes[0].text.splitlines()) == 4
    assert nodes[0].text.splitlines()[1].startswith("- hub has spoke 077.") or (
        "spoke 077" in nodes[0].text
    )
    _, trace = retriever_of(HUB, max_new_nodes=50, max_frontier=20).connect(["hub", "nowhere"])
    assert any("nowhere" in line for line in trace.dropped)
    apart = toy_graph(
        "apart", ("p", [*HUB.passages[0].triplets, ("X", "near", "Y"), ("Y", "is", "Z")])
    )
    _, trace = retriever_of(apart, max_new_nodes=50, max_frontier=20).connect(["hub", "X"])
    assert any("'hub', round 1" in line and "not expanded" in line for line in trace.dropped)


# --- nearness to the question -------------------------------------------------------------------


class Compass(BaseEmbedding):
    """Every question points along the first axis."""

    def _get_query_embedding(self, query):
        return [1.0, 0.0]

    async def _aget_query_embedding(self, query):
        return [1.0, 0.0]

    def _get_text_embedding(self, text):
        return [0.0, 1.0]


def test_nearest_to_the_question_first():
    toy = toy_graph(
        "two ways",
        ("p1", [("A", "r", "X"), ("X", "r", "B"), ("A", "s", "Y"), ("Y", "s", "B")]),
    )
    vectors = {t.id: [1.0, 0.0] if t.predicate == "s" else [0.0, 1.0] for t in toy.triplets}
    options = {"embed_model": Compass(), "max_paths": 1, "entity_extractor": lambda q: ["A", "B"]}
    for reader in (MemoryReader(toy, vectors), AskedReader(toy, vectors)):
        nodes, trace = ConnectionRetriever(reader, **options).retrieve_with_trace("How?")
        assert nodes[0].text.splitlines()[0] == "A -[s]-> Y -[s]-> B"
        assert nodes[1].text.splitlines()[1].startswith("- A s Y.")
        assert trace.calls["embedding"] == 1
        assert nodes[0].relations[0].score == pytest.approx(1.0)
    plain = ConnectionRetriever(
        MemoryReader(toy), max_paths=1, entity_extractor=options["entity_extractor"]
    )
    assert plain.retrieve("How?")[0].text.splitlines()[0] == "A -[r]-> X -[r]-> B"


# --- names --------------------------------------------------------------------------------------


def test_one_entity_gives_its_document():
    for mode in ("both", "paths"):
        (node,) = retriever_of(STORY, mode=mode).retrieve("Who is Ann?")
        assert node.node.metadata["kind"] == "entity"


def test_no_entity_gives_a_reason_or_the_other_retrievers_passages():
    nodes, trace = retriever_of(STORY).retrieve_with_trace("What is the weather?")
    assert nodes == []
    assert trace.fallbacks == ["no entity: the question names none"]
    other = Passages("q1", "q2")
    nodes = retriever_of(STORY, passage_retriever=other).retrieve("What is the weather?")
    assert [(node.node_id, node.score) for node in nodes] == [("q1", 0.5), ("q2", 0.5)]
    nodes, trace = retriever_of(STORY).retrieve_with_trace("  ")
    assert (nodes, trace.fallbacks) == ([], ["the question is empty: nothing was asked"])


async def test_passages_of_another_retriever_follow_once():
    retriever = retriever_of(STORY, mode="passages", passage_retriever=Passages("p2", "q1", "q1"))
    nodes = retriever.retrieve(QUESTION)
    assert [node.node_id for node in nodes] == ["p1", "p2", "q1"]
    assert [node.score for node in nodes] == [1.0, pytest.approx(2 / 3), pytest.approx(1 / 3)]
    again = await retriever.aretrieve(QUESTION)
    assert [node.node_id for node in again] == ["p1", "p2", "q1"]


def test_unknown_names_and_one_name_twice():
    retriever = retriever_of(STORY)
    nodes, trace = retriever.connect(["Ann", "Zoe", "ann ", " Cleo", ""])
    assert trace.dropped[0] == "'Zoe': no entity of the graph has this name or id"
    assert trace.dropped[1] == "'ann': the same entity as 'Ann'"
    assert [side.name for side in trace.sides] == ["Ann", "Cleo"]
    assert nodes[0].text.startswith("Ann -[knows]-> Ben")
    nodes, trace = retriever.connect(["Zoe", "Yann"])
    assert nodes == []
    assert trace.fallbacks == ["no entity: none of the names is in the graph"]


def test_a_name_that_means_several_entities():
    toy = toy_graph(
        "two Parises",
        ("p1", [("Paris (Texas)", "is in", "Texas"), ("Paris (France)", "is on", "the Seine")]),
        ("p2", [("Le Havre", "is on", "the Seine")]),
    )
    reader = AskedReader(toy)
    reader.meanings["Paris"] = ["Paris (Texas)", "Paris (France)"]
    retriever = ConnectionRetriever(reader, entity_extractor=None)
    nodes, trace = retriever.connect(["Paris", "Le Havre"])
    assert [len(side.entities) for side in trace.sides] == [2, 1]
    assert nodes[0].text.splitlines()[0] == (
        "Paris (France) -[is on]-> the Seine <-[is on]- Le Havre"
    )
    assert len(nodes) == 4
    # The name that can mean one entity only takes it from the other.
    _, trace = retriever.connect(["Paris", "Paris (France)"])
    assert [side.entities[0].name for side in trace.sides] == ["Paris (Texas)", "Paris (France)"]
    assert trace.gaps[0].exhausted


@pytest.mark.parametrize("asked", [False, True])
def test_fifty_names(asked):
    toy = edges_graph([(0, i) for i in range(1, 51)])
    names = [f"e{i:02d}" for i in range(1, 51)]
    nodes, trace = retriever_of(toy, asked=asked).connect(names)
    paths = [node for node in nodes if node.node.metadata["kind"] == "path"]
    assert len(trace.connections) == 1225
    # As many paths as join them all, and no more.
    assert len(paths) == 49
    joined = nx.Graph(
        [(n.node.metadata["entities"][0], n.node.metadata["entities"][-1]) for n in paths]
    )
    assert nx.is_connected(joined)
    assert set(joined) == set(names)
    assert len({id_ for n in nodes for id_ in n.node.metadata["entity_ids"]}) <= 100 * 50 + 7 * 49


def test_a_disconnected_graph():
    nodes, trace = retriever_of(STORY).connect(["Ann", "Dora"])
    assert [node.node.metadata["kind"] for node in nodes] == ["entity", "entity"]
    (gap,) = trace.gaps
    assert (gap.left, gap.right, gap.exhausted) == ("Ann", "Dora", True)
    assert not trace.connections


def test_a_self_loop_joins_nothing():
    nodes, _ = retriever_of(SELF_LOOP).connect(["Echo", "Narcissus"])
    assert nodes[0].text.splitlines()[0] == "Echo -[loves]-> Narcissus"
    (node,) = retriever_of(SELF_LOOP).retrieve("Narcissus")
    assert node.text.splitlines()[1:] == ['- Echo loves Narcissus. "Echo loves Narcissus." [p1]']


def test_an_index_that_is_emptied_in_between():
    reader = MemoryReader(STORY)
    retriever = ConnectionRetriever(reader)
    assert retriever.retrieve(QUESTION)
    full, matching = reader.graph, reader.match_entities

    def emptied(names, **options):
        found = matching(names, **options)
        reader.passages = {}
        reader.graph = GraphSnapshot.empty()
        return found

    reader.match_entities = emptied
    nodes, trace = retriever.retrieve_with_trace(QUESTION)
    assert nodes == []
    assert "path Ann - Ben - Cleo: the graph changed, its facts are gone" in trace.dropped
    nodes, trace = retriever.retrieve_with_trace(QUESTION)
    assert nodes == []
    assert trace.fallbacks == ["no entity: the question names none"]
    assert full.n_entities


def test_an_entity_that_is_written_in_between_counts_as_unknown():
    reader, later = MemoryReader(STORY), MemoryReader(edges_graph([(0, 1)]))
    reader.match_entities = lambda names, **options: [
        [*here, *there]
        for here, there in zip(
            MemoryReader(STORY).match_entities(names), later.match_entities(names)
        )
    ]
    nodes, trace = ConnectionRetriever(reader).connect(["Ann", "e00"])
    assert [side.name for side in trace.sides] == ["Ann"]
    assert trace.dropped == ["'e00': no entity of the graph has this name or id"]
    assert len(nodes) == 1


def test_a_store_that_is_down_raises():
    class Down(AskedReader):
        def links(self, *args, **options):
            raise StoreError("the store does not answer; start it")

    retriever = ConnectionRetriever(Down(STORY), entity_extractor=lambda q: ["Ann", "Cleo"])
    with pytest.raises(StoreError, match="start it"):
        retriever.retrieve(QUESTION)


# --- over an index, and with an LLM -------------------------------------------------------------


async def test_over_an_index_in_milvus(tmp_path):
    pytest.importorskip("milvus_lite", reason="needs Milvus Lite")
    from llama_index_graph_rag.demo import CONNECTION, load_demo
    from llama_index_graph_rag.index import GraphRAGIndex

    demo = load_demo()
    index = GraphRAGIndex.from_triplets(
        demo.nodes, demo.triplets, uri=tmp_path / "demo.db", embed_model=MockEmbedding(8)
    )
    try:
        question = f"How are {CONNECTION[0]} and {CONNECTION[1]} connected?"
        retriever = ConnectionRetriever(index.store, embed_model=MockEmbedding(8))
        nodes, trace = retriever.retrieve_with_trace(question)
        assert nodes[0].node.metadata["entities"] == [
            *("Joseph Fourier", "Joseph-Louis Lagrange"),
            *("Leonhard Euler", "Johann Bernoulli"),
        ]
        passages = ["joseph-fourier", "joseph-louis-lagrange", "leonhard-euler"]
        assert nodes[0].node.metadata["passage_ids"] == passages
        assert set(trace.calls) == {"reader.match", "reader.facts", "embedding"}
        again = await retriever.aretrieve(question)
        assert [node.text for node in again] == [node.text for node in nodes]
        original = ConnectionRetriever(index.store, mode="passages").retrieve(question)
        assert [node.node_id for node in original] == passages
        index.delete_nodes(["joseph-louis-lagrange"])
        later = retriever.retrieve(question)
        assert all("joseph-louis-lagrange" not in node.text for node in later)
    finally:
        index.close()


async def test_names_by_an_llm():
    llm = ScriptedLLM('{"entities": ["Ann", "Cleo"]}')
    retriever = ConnectionRetriever(
        AskedReader(STORY), entity_extractor=LLMEntityExtractor(llm), mode="paths"
    )
    for nodes, trace in (
        retriever.retrieve_with_trace(QUESTION),
        await retriever.aretrieve_with_trace(QUESTION),
    ):
        assert nodes[0].text.startswith("Ann -[knows]-> Ben")
        assert trace.calls["llm"] == 1
    down = ConnectionRetriever(
        AskedReader(STORY),
        entity_extractor=LLMEntityExtractor(ScriptedLLM(RuntimeError("down"))),
    )
    nodes, trace = down.retrieve_with_trace(QUESTION)
    assert nodes == []
    assert trace.fallbacks[0].startswith("query entities: ")
    assert trace.fallbacks[1] == "no entity: the question names none"


# --- in LlamaIndex ------------------------------------------------------------------------------


async def test_in_engines_and_as_a_tool():
    retriever = retriever_of(STORY)
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
    assert "Ann -[knows]-> Ben" in str(engine.query(QUESTION))
    assert "Ann -[knows]-> Ben" in str(await engine.aquery(QUESTION))
    empty = engine.query("What is the weather?")
    assert str(empty) == "Empty Response"
    for mode in ("reciprocal_rerank", "relative_score", "dist_based_score", "simple"):
        fusion = QueryFusionRetriever(
            [retriever, Passages("p1")],
            llm=MockLLM(),
            mode=mode,
            num_queries=1,
            use_async=False,
            similarity_top_k=9,
        )
        ids = {node.node_id for node in fusion.retrieve(QUESTION)}
        assert len(ids) == 4
        assert {node.node_id for node in await fusion.aretrieve(QUESTION)} == ids
    tool = RetrieverTool.from_defaults(retriever, name="connect", description="connects")
    assert "Ann -[knows]-> Ben" in tool.call(QUESTION).content
    assert "Ann -[knows]-> Ben" in (await tool.acall(QUESTION)).content


def test_the_trace_is_an_event():
    events = []

    class Handler(BaseEventHandler):
        def handle(self, event, **kwargs):
            events.append(event)

    root = get_dispatcher()
    root.add_event_handler(Handler())
    try:
        _, trace = retriever_of(STORY).retrieve_with_trace(QUESTION)
    finally:
        root.event_handlers.pop()
    (event,) = [event for event in events if isinstance(event, RetrievalTraceEvent)]
    assert event.trace is trace
    assert trace.paths == ["Ann -[knows]-> Ben -[admired]-> Cleo"]
    assert {"total", "entities", "search", "prune", "facts", "write"} <= set(trace.milliseconds)


def test_query_bundle_is_not_changed():
    bundle = QueryBundle(f" {QUESTION} ", embedding=[1.0, 2.0, 3.0])
    ConnectionRetriever(MemoryReader(STORY), embed_model=MockEmbedding(2)).retrieve(bundle)
    assert bundle.query_str == f" {QUESTION} "
    assert bundle.embedding == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "all"}, "mode='all'"),
        ({"max_paths": 0}, "max_paths is 0"),
        ({"max_relations": 0}, "max_relations is 0"),
        ({"max_frontier": 0}, "frontier is 0"),
        ({"similarity_top_k": 0}, "similarity_top_k is 0"),
        ({"max_rounds": 200}, "rounds is 200"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(GraphRAGValueError, match=message):
        retriever_of(STORY, **options)


def test_what_a_reader_lacks_is_said():
    reader = AskedReader(STORY)
    with pytest.raises(GraphRAGValueError, match="no vocabulary"):
        ConnectionRetriever(reader)
    with pytest.raises(GraphRAGValueError, match="get_passages"):
        ConnectionRetriever(reader, entity_extractor=None, mode="passages")
    with pytest.raises(GraphRAGTypeError, match="entity_extractor"):
        ConnectionRetriever(reader, entity_extractor=3)


def test_connect_text():
    text = connect_text(MemoryReader(STORY), ["Ann", "Cleo"])
    assert text.startswith("Ann -[knows]-> Ben -[admired]-> Cleo\n- Ann knows Ben.")
    text = connect_text(MemoryReader(STORY), ["Ann", "Dora"])
    assert text == "Ann and Dora: there is no path (4 and 2 entities searched)"


def test_references_carry_ids_of_the_store():
    ref = EntityRef("1:marko", "marko")
    walk = ReaderWalk(AskedReader(STORY), Counter())
    assert walk.rows([ref, ref]) == [0, 0]
    assert walk.refs([0]) == [ref]


@pytest.mark.parametrize("names", ["Euler", None, [1], [None, "a"], b"ab", 3])
def test_names_that_are_no_list_of_strings_are_refused(names):
    retriever = ConnectionRetriever(MemoryReader(HUB), entity_extractor=None)
    with pytest.raises(GraphRAGTypeError, match="names is a list of strings"):
        retriever.connect(names)


async def test_an_embedding_or_an_extractor_that_fails_costs_no_answer():
    class Down(MockEmbedding):
        def _get_query_embedding(self, query):
            raise RuntimeError("embedding is down")

        async def _aget_query_embedding(self, query):
            raise RuntimeError("embedding is down")

    def broken(question):
        raise RuntimeError("extractor is down")

    reader = MemoryReader(toy_graph("pair", ("p", [("a", "r", "b")])))
    names = ["a", "b"]
    retriever = ConnectionRetriever(
        reader, entity_extractor=lambda _: names, embed_model=Down(embed_dim=4)
    )
    for nodes, trace in (
        retriever.retrieve_with_trace("a and b?"),
        await retriever.aretrieve_with_trace("a and b?"),
    ):
        assert nodes
        assert any("embedding is down" in line for line in trace.fallbacks)
    nodes, trace = ConnectionRetriever(reader, entity_extractor=broken).retrieve_with_trace("?")
    assert nodes == []
    assert "extractor is down" in trace.fallbacks[0]


def test_hostile_names_give_short_messages_and_results_that_can_be_sent_on():
    long, half = "x" * 10_000, "half \ud800"
    store = SimplePropertyGraphStore()
    store.upsert_nodes([EntityNode(name=name) for name in (long, half)])
    store.upsert_relations([Relation(label="\ud800\n", source_id=long, target_id=half)])
    retriever = ConnectionRetriever(PropertyGraphReader(store), entity_extractor=None)
    nodes, trace = retriever.connect([long, half, "y" * 10_000])
    assert all("\ufffd" in node.model_dump_json() for node in nodes)
    assert max(map(len, trace.dropped)) < 300
