"""Explanations: what they say agrees with what was retrieved, and costs no further call."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter

import networkx as nx
import pytest
from llama_index.core.graph_stores import SimplePropertyGraphStore
from llama_index.core.graph_stores.types import EntityNode, Relation
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.span_handlers import SimpleSpanHandler
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

from llama_index_graph_rag import (
    GraphRAGIndex,
    LLMRelationRerank,
    RelationRetriever,
    RelationsToPassages,
)
from llama_index_graph_rag.demo import load_demo
from llama_index_graph_rag.errors import GraphRAGTypeError
from llama_index_graph_rag.explanation import Explanation
from llama_index_graph_rag.identity import relation_id
from llama_index_graph_rag.retrievers.knowledge_graph import KnowledgeGraphRetriever
from llama_index_graph_rag.retrievers.subgraph import predicate_between
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM
from llama_index_graph_rag.trace import MAX_TRACED_RELATIONS, RetrievalTrace
from llama_index_graph_rag.triplets import Triplet

QUESTION = "What contribution did the son of Euler's teacher make?"
TAUGHT = "Johann Bernoulli was the teacher of Leonhard Euler"
WROTE = "Daniel Bernoulli wrote Hydrodynamica"
STRONGEST_FIRST = ["chosen", "used", "recalled", "expanded"]


def choosing(*facts):
    """An LLM that chooses these facts and says why."""

    def answer(prompt):
        labels = dict(re.findall(r"^\[(\d+)\] (.*)$", prompt.rpartition("Facts:")[2], re.M))
        chosen = [{"label": int(n), "text": text} for n, text in labels.items() if text in facts]
        return json.dumps({"reasoning": "The teacher first.\nThen his son.", "relations": chosen})

    return ScriptedLLM(answer)


@pytest.fixture(scope="module")
def demo():
    demo = load_demo()
    for place, node in enumerate(demo.nodes):
        node.metadata["even"] = "no" if place % 2 else "yes"
    return demo


@pytest.fixture(scope="module")
def index(demo, make_embedding, tmp_path_factory):
    index = GraphRAGIndex.from_triplets(
        demo.nodes,
        demo.triplets,
        uri=tmp_path_factory.mktemp("explain") / "demo.db",
        embed_model=make_embedding(256),
    )
    yield index
    index.close()


@pytest.fixture
def people():
    """A graph in which two entities have one name."""
    store = SimplePropertyGraphStore()
    names = {"a": "Ann", "b": "Bo", "b2": "Bo", "c": "Cleo"}
    store.upsert_nodes(
        [EntityNode(name=id, properties={"name": name}) for id, name in names.items()]
    )
    store.upsert_relations(
        [
            Relation(label="knows", source_id="a", target_id="b"),
            Relation(label="knows", source_id="a", target_id="b2"),
            Relation(label="likes", source_id="c", target_id="a"),
        ]
    )
    return store


def without_times(explanation):
    return re.sub(r"\d+ ms.*", "", str(explanation))


# --- GraphRAGRetriever ----------------------------------------------------------------------------


def test_it_explains_what_retrieve_returns(index) -> None:
    retriever = index.as_retriever(similarity_top_k=3)
    explanation = retriever.explain(QUESTION)
    ids = [node.node_id for node in retriever.retrieve(QUESTION)]
    assert [node.node_id for node in explanation.nodes] == ids
    assert without_times(asyncio.run(retriever.aexplain(QUESTION))) == without_times(explanation)


def test_it_costs_no_further_call(index, monkeypatch) -> None:
    retriever = index.as_retriever(llm=choosing(TAUGHT))
    seen = Counter()
    for name in ("search", "get_passages", "get_vectors", "permitted", "refresh"):
        method = getattr(index.store, name)

        def counted(*args, _name=name, _method=method, **kwargs):
            seen[_name] += 1
            return _method(*args, **kwargs)

        monkeypatch.setattr(index.store, name, counted)
    retriever.retrieve(QUESTION)
    alone = seen.copy()
    seen.clear()
    explanation = retriever.explain(QUESTION)
    explanation.to_html(), str(explanation), explanation.to_networkx()
    assert seen == alone


def test_the_tree_tells_recall_growth_passages_and_cost(index) -> None:
    explanation = index.as_retriever(similarity_top_k=2).explain(QUESTION)
    text, trace = str(explanation), explanation.trace
    assert text.splitlines()[0] == QUESTION
    assert f"entities of the question ({len(trace.entities)})" in text
    for hit in trace.relations[:5]:
        assert f"{hit.similarity:.2f} {hit.text}" in text
    assert f"... and {len(trace.relations) - 5} more" in text
    assert f"Grown to {sum(trace.expansion.values())} relations" in text
    for node in explanation.nodes:
        assert node.node.metadata["title"] in text
        assert all(use.text in text for use in node.relations)
    assert "1 embedding" in text
    assert "by the LLM" not in text


def test_the_tree_tells_what_the_llm_chose_and_why(index) -> None:
    explanation = index.as_retriever(llm=choosing(TAUGHT, WROTE), max_candidates=80).explain(
        QUESTION
    )
    text = str(explanation)
    shown = len(explanation.trace.candidates)
    assert f"Chosen by the LLM, 2 of {shown}" in text
    assert "The teacher first. Then his son." in text
    chosen = [one for one in explanation.trace.subgraph if one.role == "chosen"]
    assert {one.text for one in chosen} == {TAUGHT, WROTE}


def test_the_tree_tells_of_fallbacks_and_of_what_was_left_out(index) -> None:
    broken = ScriptedLLM(RuntimeError("no such model"))
    explanation = index.as_retriever(llm=broken, max_expanded_relations=5).explain(QUESTION)
    text = str(explanation)
    assert "Fallbacks" in text
    assert "no such model" in text
    assert re.search(r"Left out \(\d+\)", text)
    assert "relations beyond 5" in text
    assert "by the LLM" not in text
    assert index.as_retriever().explain("  ").nodes == ()


def test_relations_are_named_as_they_were_written(index, demo) -> None:
    written = {triplet.id: triplet for of_one in demo.triplets for triplet in map(_triplet, of_one)}
    trace = index.as_retriever(llm=choosing(TAUGHT), degree=2).explain(QUESTION).trace
    assert len(trace.subgraph) > 20
    places = [STRONGEST_FIRST.index(one.role) for one in trace.subgraph]
    assert places == sorted(places)
    assert len({one.id for one in trace.subgraph}) == len(trace.subgraph)
    for one in trace.subgraph:
        triplet = written[one.id]
        assert (one.subject_id, one.object_id) == (triplet.subject_id, triplet.object_id)
        assert one.predicate in ("", triplet.predicate)
    # The passages of whatever the LLM may choose were fetched: these are all spelled.
    shown = {hit.id for hit in trace.candidates}
    assert all(one.predicate for one in trace.subgraph if one.id in shown)
    used = {use.id for result in trace.results for use in result.relations}
    assert used <= {one.id for one in trace.subgraph if one.role in ("chosen", "used")}


def test_recalled_relations_have_their_predicates_without_an_llm(index) -> None:
    trace = index.as_retriever(similarity_top_k=1).explain(QUESTION).trace
    recalled = [one for one in trace.subgraph if one.role == "recalled"]
    assert len(recalled) > 10
    assert all(one.predicate and one.similarity is not None for one in recalled)


def test_a_filter_holds_for_the_picture_too(index, demo) -> None:
    filters = MetadataFilters(filters=[MetadataFilter(key="even", value="yes")])
    trace = index.as_retriever(filters=filters, degree=2).explain(QUESTION).trace
    permitted = {
        _triplet(one).id
        for node, of_one in zip(demo.nodes, demo.triplets)
        if node.metadata["even"] == "yes"
        for one in of_one
    }
    assert trace.subgraph
    assert {one.id for one in trace.subgraph} <= permitted


def test_a_picture_has_an_end_and_says_so(build_index) -> None:
    facts = [("Euler", "wrote", f"letter {i}") for i in range(MAX_TRACED_RELATIONS + 50)]
    nodes = [TextNode(text=f"Letters {i}", id_=str(i)) for i in range(10)]
    index = build_index(nodes, [facts[i::10] for i in range(10)])
    retriever = index.as_retriever(max_relations_per_entity=1000)
    explanation = retriever.explain("What did Euler write?")
    trace = explanation.trace
    assert len(trace.subgraph) == MAX_TRACED_RELATIONS
    assert trace.beyond_subgraph == 50
    assert "50 more relations were reached" in explanation.to_html()


@pytest.mark.parametrize(
    ("text", "ends", "predicate"),
    [
        ("Euler was a student of Bernoulli", ("euler", "Bernoulli"), "was a student of"),
        ("Euler saw Euler", ("Euler", "Euler"), "saw"),
        ("Euler", ("Euler", "Euler"), ""),
        ("Eulers Bernoulli", ("Euler", "Bernoulli"), ""),
        ("Straße in Basel", ("Strasse", "Basel"), ""),
        ("", ("a", "b"), ""),
    ],
)
def test_predicate_between(text, ends, predicate) -> None:
    assert predicate_between(text, *ends) == predicate


def test_relations_chosen_in_a_pipeline_are_explained(index) -> None:
    nodes, trace = RelationRetriever(
        index.store, embed_model=index._embed_model
    ).retrieve_with_trace(QUESTION)
    assert str(Explanation.from_trace(nodes, trace)).count("Candidates") == 1
    assert {one.role for one in trace.subgraph} == {"recalled", "expanded"}
    for step in (LLMRelationRerank(llm=choosing(TAUGHT)), RelationsToPassages(index.store)):
        nodes = step.postprocess_nodes(nodes, query_str=QUESTION)
    explanation = Explanation.from_trace(nodes, trace)
    assert "Chosen by the LLM" in str(explanation)
    assert [one.text for one in trace.subgraph if one.role == "chosen"] == [TAUGHT]


# --- the other retrievers -------------------------------------------------------------------------


def test_connections_are_explained(index) -> None:
    retriever = index.as_connection_retriever()
    explanation = retriever.explain("What links Joseph Fourier and Johann Bernoulli?")
    text, trace = str(explanation), explanation.trace
    assert "Joseph Fourier and Johann Bernoulli: 3 steps apart, 1 of 1 shortest" in text
    assert "round 1" in text
    on_path = {one.text for one in trace.subgraph if one.role == "chosen"}
    assert on_path == {use.text for use in explanation.nodes[0].relations}
    assert {one.role for one in trace.subgraph} == {"chosen", "used"}
    again = asyncio.run(retriever.aexplain("What links Joseph Fourier and Johann Bernoulli?"))
    assert without_times(again) == text.replace(re.findall(r"\d+ ms.*", text)[0], "")


def test_names_that_nothing_connects_are_explained(build_index) -> None:
    index = build_index([TextNode(text="x")], [[("A", "is", "B"), ("C", "is", "D")]])
    connect = index.as_connection_retriever(mode="paths").connect
    text = str(Explanation.from_trace(*connect(["A", "C"])))
    assert "A and C: there is no path (2 and 2 entities seen)" in text
    assert "Returned (0)" in text
    entities = index.as_connection_retriever(mode="entities").explain("A and B?")
    assert [one.role for one in entities.trace.subgraph] == ["used"]


def test_a_knowledge_graph_is_explained(people) -> None:
    retriever = KnowledgeGraphRetriever(
        people, keyword_extractor=lambda question: ["Ann", "Zoe"], as_paths=True, match_by="name"
    )
    explanation = retriever.explain("Whom does Ann know?")
    text = str(explanation)
    assert "keywords: Ann, Zoe" in text
    assert "not in the graph: Zoe" in text
    for node in explanation.nodes:
        assert all(use.text in text for use in node.relations)
    graph = explanation.to_networkx()
    assert sorted(graph) == ["Ann", "Bo (b)", "Bo (b2)", "Cleo"]
    assert sorted((a, b, p) for a, b, p in graph.edges(data="predicate")) == [
        ("Ann", "Bo (b)", "knows"),
        ("Ann", "Bo (b2)", "knows"),
        ("Cleo", "Ann", "likes"),
    ]
    assert [name for name, seed in graph.nodes(data="seed") if seed] == ["Ann"]


# --- Explanation ----------------------------------------------------------------------------------


def test_arguments_in_the_wrong_order_are_refused(index) -> None:
    nodes, trace = index.as_retriever().retrieve_with_trace(QUESTION)
    with pytest.raises(GraphRAGTypeError, match="got list"):
        Explanation.from_trace(trace, nodes)


async def test_it_has_a_span_above_what_it_calls(index) -> None:
    spans = SimpleSpanHandler()
    dispatcher = get_dispatcher()
    dispatcher.add_span_handler(spans)
    try:
        index.as_retriever().explain(QUESTION)
        await index.as_retriever().aexplain(QUESTION)
    finally:
        dispatcher.span_handlers.remove(spans)
    above = {span.id_: span.parent_id for span in spans.completed_spans}
    roots = [id.partition("-")[0] for id, parent in above.items() if parent is None]
    assert roots == ["GraphRAGRetriever.explain", "GraphRAGRetriever.aexplain"]
    assert len(above) > 4


def test_a_trace_of_another_kind_tells_what_all_have() -> None:
    trace = RetrievalTrace("Who?", fallbacks=["the index is empty"])
    text = str(Explanation.from_trace([], trace))
    assert text.splitlines()[0] == "Who?"
    assert "the index is empty" in text


def test_rich_prints_the_tree_without_reading_markup(index) -> None:
    console = pytest.importorskip("rich.console", reason="needs rich")
    explanation = index.as_connection_retriever().explain("[bold]Leonhard Euler[/bold]")
    printed = console.Console(width=200, file=None, record=True)
    with printed.capture() as captured:
        printed.print(explanation)
    assert captured.get().splitlines()[0] == "[bold]Leonhard Euler[/bold]"
    assert "Leonhard Euler was a student of Johann Bernoulli" in captured.get()


def test_to_networkx_holds_what_was_touched(index) -> None:
    explanation = index.as_retriever(llm=choosing(TAUGHT)).explain(QUESTION)
    graph = explanation.to_networkx()
    trace = explanation.trace
    assert isinstance(graph, nx.MultiDiGraph)
    assert {key for _, _, key in graph.edges(keys=True)} == {one.id for one in trace.subgraph}
    triplet = ("Johann Bernoulli", "was the teacher of", "Leonhard Euler")
    taught = graph.edges[triplet[0], triplet[2], relation_id(*triplet)]
    assert (taught["predicate"], taught["role"]) == (triplet[1], "chosen")
    assert {graph.nodes[hit.text]["id"] for hit in trace.entities} == {
        hit.id for hit in trace.entities
    }


def test_index_to_networkx_holds_all_that_passages_state(index, demo) -> None:
    graph = index.to_networkx()
    expected: dict[str, set[str]] = {}
    for node, of_one in zip(demo.nodes, demo.triplets):
        for one in of_one:
            expected.setdefault(_triplet(one).id, set()).add(node.node_id)
    found = {key: set(passages) for *_, key, passages in graph.edges(keys=True, data="passages")}
    assert found == expected
    stats = index.stats()
    assert (len(graph), graph.number_of_edges()) == (stats["entities"], stats["relations"])
    json.dumps([dict(graph.nodes(data=True)), list(graph.edges(data=True))])


def test_index_to_networkx_leaves_out_what_was_deleted(build_index) -> None:
    nodes = [TextNode(text=name, id_=name) for name in ("p", "q")]
    index = build_index(nodes, [[("A", "is", "B")], [("a", "is", "b"), ("B", "has", "C")]])
    assert index.to_networkx().edges["A", "B", relation_id("A", "is", "B")]["passages"] == [
        "p",
        "q",
    ]
    index.delete_nodes(["q"])
    graph = index.to_networkx()
    assert list(graph.edges(data="passages")) == [("A", "B", ["p"])]
    index.delete_nodes(["p"])
    assert len(index.to_networkx()) == 0


def _triplet(one) -> Triplet:
    return Triplet(*one)
