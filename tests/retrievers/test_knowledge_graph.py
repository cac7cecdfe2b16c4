from __future__ import annotations

import asyncio
import itertools
import json
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.graph_stores import SimplePropertyGraphStore
from llama_index.core.graph_stores.types import EntityNode, Relation
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.prompts import PromptTemplate
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import MetadataMode, QueryBundle

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError, StoreError
from llama_index_graph_rag.extractors.keywords import (
    KeywordExtractor,
    Keywords,
    LLMKeywordExtractor,
)
from llama_index_graph_rag.retrievers.knowledge_graph import KnowledgeGraphRetriever
from llama_index_graph_rag.retrievers.knowledge_sequences import (
    MAX_VALUE_LENGTH,
    Writer,
    nearness,
    select,
    strictly_decreasing,
)
from llama_index_graph_rag.stores.base import Edge, EntityRef, Path
from llama_index_graph_rag.stores.property_graph import PropertyGraphReader
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM
from llama_index_graph_rag.trace import RetrievalTraceEvent

QUESTION = "What did marko make?"


@pytest.fixture
def people():
    """The structure of HugeGraph's example: people and the software they make."""
    store = SimplePropertyGraphStore()
    store.upsert_nodes(
        [
            EntityNode(name="marko", label="person", properties={"age": 29}),
            EntityNode(name="vadas", label="person", properties={"age": 27}),
            EntityNode(name="josh", label="person", properties={"age": 32}),
            EntityNode(name="lop", label="software", properties={"lang": "java"}),
            EntityNode(name="ripple", label="software", properties={"lang": "java"}),
        ]
    )
    store.upsert_relations(
        [
            _relation("marko", "knows", "vadas", date="20160110"),
            _relation("marko", "knows", "josh", date="20130220"),
            _relation("marko", "created", "lop", date="20171210"),
            _relation("josh", "created", "ripple", date="20151010"),
            _relation("josh", "created", "lop"),
        ]
    )
    return store


def _relation(source, label, target, **properties):
    return Relation(label=label, source_id=source, target_id=target, properties=properties)


def retriever(store, keywords=("marko",), **kwargs):
    return KnowledgeGraphRetriever(store, keyword_extractor=lambda _: list(keywords), **kwargs)


MARKO, VADAS = "marko{name: marko, age: 29}", "vadas{name: vadas, age: 27}"
JOSH, LOP = "josh{name: josh, age: 32}", "lop{name: lop, lang: java}"
RIPPLE = "ripple{name: ripple, lang: java}"
KNOWS_JOSH = f"{MARKO} -[knows:{{date: 20130220}}]-> {JOSH}"
KNOWS_VADAS = f"{MARKO} -[knows:{{date: 20160110}}]-> {VADAS}"
MADE_LOP = f"{MARKO} -[created:{{date: 20171210}}]-> {LOP}"


# --- the sequences, in full ---------------------------------------------------------------------


def test_depth_1(people):
    (node,) = retriever(people, graph_traversal_depth=1).retrieve(QUESTION)
    assert node.node.metadata["kg_rel_text"] == [KNOWS_JOSH, MADE_LOP, KNOWS_VADAS]


def test_depth_2_writes_nothing_twice(people):
    (node,) = retriever(people).retrieve(QUESTION)
    assert node.node.metadata["kg_rel_text"] == [
        f"{KNOWS_JOSH} -[created]-> {LOP}",
        f"{MADE_LOP} <-[created]- {JOSH}",
        KNOWS_VADAS,
        f"{KNOWS_JOSH} -[created:{{date: 20151010}}]-> {RIPPLE}",
    ]


def test_the_same_over_hugegraph(hugegraph_url):
    pytest.importorskip("graphersal")
    from llama_index_graph_rag.stores.hugegraph import HugeGraphStore

    store = HugeGraphStore(hugegraph_url)
    store.add_triplets([("marko", "knows", "josh"), ("marko", "created", "lop")])
    assert retriever(store).retrieve(QUESTION)[0].node.metadata["kg_rel_text"] == [
        "marko{name: marko} -[knows]-> josh{name: josh}",
        "marko{name: marko} -[created]-> lop{name: lop}",
    ]


def test_text_names_notation_and_depth_and_metadata_is_kept_from_the_llm(people):
    (node,) = retriever(people, graph_traversal_depth=1).retrieve(QUESTION)
    lines = node.node.text.splitlines()
    assert lines[-3:] == node.node.metadata["kg_rel_text"]
    assert "up to 1" in lines[0]
    assert "`A <-[r]- B`" in node.node.text
    assert node.node.metadata["kg_rel_map"] == {"marko": lines[-3:]}
    shown = node.node.get_content(MetadataMode.LLM)
    assert "kg_rel" not in shown
    assert "(person)-[created]->(software)" in shown
    assert node.node.get_content(MetadataMode.EMBED) == node.node.text
    json.dumps(node.node.to_dict())


def test_schema_only_if_wanted_and_read_once(people):
    without = retriever(people, include_schema=False).retrieve(QUESTION)
    assert "kg_schema" not in without[0].node.metadata
    engine = retriever(people)
    _, first = engine.retrieve_with_trace(QUESTION)
    _, second = engine.retrieve_with_trace(QUESTION)
    engine.refresh_schema()
    _, third = engine.retrieve_with_trace(QUESTION)
    assert [t.calls["store.schema"] for t in (first, second, third)] == [1, 0, 1]


def test_as_paths_gives_scored_nodes_that_are_fresh_and_stable(people):
    paths = retriever(people, as_paths=True)
    nodes, again = paths.retrieve(QUESTION), paths.retrieve(QUESTION)
    scores = [node.score for node in nodes]
    assert all(type(score) is float and 0 < score <= 1 for score in scores)
    assert all(a > b for a, b in itertools.pairwise(scores))
    assert [node.text for node in nodes][2] == KNOWS_VADAS
    assert [node.node.hash for node in nodes] == [node.node.hash for node in again]
    assert [node.node_id for node in nodes] == [node.node_id for node in again]
    assert not {id(node) for node in nodes} & {id(node) for node in again}


def test_overlapping_entities_are_not_written_from_both_sides(people):
    _, trace = retriever(people, ["marko", "josh"], graph_traversal_depth=1).retrieve_with_trace(
        "?"
    )
    assert trace.sequences[0] == KNOWS_JOSH
    assert len(trace.sequences) == 5
    assert any("another one contains" in line for line in trace.dropped)


def test_limit_is_kept_and_said(people):
    nodes, trace = retriever(people, max_knowledge_sequence=2, as_paths=True).retrieve_with_trace(
        "?"
    )
    assert len(nodes) == 2
    assert any("over max_knowledge_sequence=2" in line for line in trace.dropped)
    _, trace = retriever(
        people, max_knowledge_sequence=2, max_candidates=2, graph_traversal_depth=1
    ).retrieve_with_trace("?")
    assert any("raise max_candidates" in line for line in trace.dropped)


def test_labels_keep_only_their_edges(people):
    (node,) = retriever(people, labels=["created"], graph_traversal_depth=1).retrieve("?")
    assert node.node.metadata["kg_rel_text"] == [MADE_LOP]


# --- ranking ------------------------------------------------------------------------------------


class WordEmbedding(BaseEmbedding):
    """Counts a few words."""

    fail: bool = False

    def _vector(self, text):
        if self.fail:
            raise TimeoutError("no answer")
        return [float(text.count(word)) + 0.01 for word in ("vadas", "lop", "ripple")]

    def _get_text_embedding(self, text):
        return self._vector(text)

    def _get_query_embedding(self, query):
        return self._vector(query)

    async def _aget_query_embedding(self, query):
        return self._vector(query)


async def test_an_embedding_model_ranks_by_the_question(people):
    engine = retriever(people, embed_model=WordEmbedding(), as_paths=True)
    assert engine.retrieve("Who is vadas?")[0].text == KNOWS_VADAS
    assert (await engine.aretrieve("Who is vadas?"))[0].text == KNOWS_VADAS
    bundle = QueryBundle("?", embedding=[0.0, 0.0, 1.0])
    assert "ripple" in engine.retrieve(bundle)[0].text
    _, trace = engine.retrieve_with_trace(bundle)
    assert trace.calls["embedding"] == 1
    _, trace = engine.retrieve_with_trace(QueryBundle("vadas", embedding=[1.0]))
    assert trace.calls["embedding"] == 2


def test_an_embedding_model_that_fails_costs_only_rank(people):
    nodes, trace = retriever(people, embed_model=WordEmbedding(fail=True)).retrieve_with_trace("?")
    assert len(nodes) == 1
    assert any("TimeoutError" in line for line in trace.fallbacks)


NAMES = st.sampled_from("abcde")


@st.composite
def paths(draw):
    names = draw(st.lists(NAMES, min_size=2, max_size=4, unique=True))
    edges = [
        Edge(draw(st.sampled_from(["r", "s"])), draw(st.booleans())) for _ in range(len(names) - 1)
    ]
    return Path(tuple(EntityRef(name, name.upper()) for name in names), tuple(edges))


def _statements(path):
    return [
        (a.id, e.predicate, b.id) if e.forward else (b.id, e.predicate, a.id)
        for a, e, b in zip(path.entities, path.edges, path.entities[1:])
    ]


def _inside(small, large):
    small, large = _statements(small), _statements(large)
    windows = [large[i : i + len(small)] for i in range(len(large) - len(small) + 1)]
    return small in windows or small[::-1] in windows


@given(st.lists(paths(), max_size=12), st.sets(NAMES, max_size=3), st.integers(1, 6))
def test_selection_keeps_all_that_is_stated_and_repeats_nothing(found, matched, limit):
    chosen = select(found, sorted(matched), limit)
    kept = chosen.paths
    assert len(kept) <= limit
    assert len(kept) + chosen.contained + chosen.cut == len(found)
    assert not any(_inside(a, b) for a in kept for b in kept if a is not b)
    assert all(0 < a <= 1 for a in chosen.scores)
    assert all(a > b for a, b in zip(chosen.scores, chosen.scores[1:]))
    if not chosen.cut:
        assert all(any(_inside(path, other) for other in kept) for path in found)


@given(paths(), st.sets(NAMES))
def test_nearness_is_a_mean_over_entities(path, matched):
    ids = [ref.id for ref in path.entities]
    places = [i for i, id in enumerate(ids) if id in matched]
    expected = [max((1 / (1 + abs(i - j)) for j in places), default=0) for i in range(len(ids))]
    assert nearness(path, matched) == pytest.approx(sum(expected) / len(ids))


@given(st.lists(st.floats(0, 1), max_size=40).map(lambda scores: sorted(scores, reverse=True)))
def test_scores_strictly_decrease_within_their_range(scores):
    made = strictly_decreasing(scores)
    assert all(0 < score <= 1 for score in made)
    assert all(a > b for a, b in itertools.pairwise(made))


# --- writing ------------------------------------------------------------------------------------


def test_lines_stay_lines_and_long_values_are_cut_with_a_word(people):
    store = SimplePropertyGraphStore()
    properties = {"note": "two\nlines  here", "long": "x" * 500, "tags": ["a", "b"]}
    store.upsert_nodes([EntityNode(name="A\nB", properties=properties), EntityNode(name="C")])
    store.upsert_relations([_relation("A\nB", "is\nnear", "C")])
    (node,), trace = retriever(store, ["C"]).retrieve_with_trace("?")
    (line,) = node.node.metadata["kg_rel_text"]
    cut = "x" * MAX_VALUE_LENGTH + "..."
    assert line == (
        f"C{{name: C}} <-[is near]- "
        f"A B{{name: A B, long: {cut}, note: two lines here, tags: [a, b]}}"
    )
    assert "1 names and values cut to 200 characters" in trace.dropped


def test_entities_of_one_name_are_told_apart():
    refs = EntityRef("1:x", "x"), EntityRef("2:x", "x"), EntityRef("3", "y")
    path = Path(refs, (Edge("r", True), Edge("s", False)))
    assert Writer([path]).line(path) == "x (1:x) -[r]-> x (2:x) <-[s]- y"


# --- keywords and matching ----------------------------------------------------------------------


async def test_an_llm_finds_keywords_and_synonyms(people):
    llm = ScriptedLLM("KEYWORDS: Mr Smith\nSYNONYMS: marko, nobody")
    engine = KnowledgeGraphRetriever(people, llm=llm)
    for nodes, trace in (
        engine.retrieve_with_trace(QUESTION),
        await engine.aretrieve_with_trace(QUESTION),
    ):
        assert len(nodes) == 1
        assert (trace.keywords, trace.synonyms) == (("Mr Smith",), ("marko", "nobody"))
        assert [ref.id for ref in trace.matches["marko"]] == ["marko"]
        assert "nobody" in trace.unmatched
        assert trace.calls["llm"] == 1
        assert "SYNONYMS" in trace.raw[0]


def test_without_llm_none_is_called_and_settings_are_not_asked(people, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "")
    _, trace = KnowledgeGraphRetriever(people).retrieve_with_trace("What did marko create?")
    assert trace.calls["llm"] == 0
    assert "marko" in trace.matches


def test_single_words_only_where_the_phrase_matches_nothing(people):
    llm = ScriptedLLM("KEYWORDS: marko rodriguez, josh")
    _nodes, trace = KnowledgeGraphRetriever(people, llm=llm).retrieve_with_trace("?x")
    assert set(trace.matches) == {"marko", "josh"}
    assert trace.calls["store.match_entities"] == 2


def test_match_by_property(people):
    engine = retriever(people, ["java"], match_by="lang", graph_traversal_depth=1)
    _, trace = engine.retrieve_with_trace("?")
    assert [ref.id for ref in trace.matches["java"]] == ["lop", "ripple"]


@pytest.mark.parametrize(
    ("kwargs", "question", "reason"),
    [
        ({"llm": ScriptedLLM("")}, "is it?", "nothing to look up"),
        ({"llm": ScriptedLLM("KEYWORDS: none")}, "Who was it?", "nothing to look up"),
        ({"llm": ScriptedLLM("KEYWORDS: Zaphod")}, "Who is Zaphod?", "knows none of Zaphod"),
        ({}, "Who is it?", "nothing to look up"),
        ({}, "  \n ", "the question is empty"),
        ({"keyword_extractor": lambda _: []}, "Who?", "the keyword function found none"),
    ],
)
async def test_nothing_found_is_an_empty_list_and_the_reason(people, kwargs, question, reason):
    engine = KnowledgeGraphRetriever(people, **kwargs)
    nodes, trace = engine.retrieve_with_trace(question)
    assert nodes == []
    assert any(reason in line for line in trace.fallbacks)
    nodes, trace = await engine.aretrieve_with_trace(question)
    assert nodes == []
    assert any(reason in line for line in trace.fallbacks)


def test_an_entity_that_stands_alone_is_said_to(people):
    people.upsert_nodes([EntityNode(name="hermit")])
    nodes, trace = retriever(people, ["hermit"]).retrieve_with_trace("?")
    assert nodes == []
    assert any("stand alone" in line for line in trace.fallbacks)


@pytest.mark.parametrize("error", [TimeoutError("slow"), RuntimeError("down")])
async def test_an_llm_that_fails_costs_quality_not_the_answer(people, error):
    engine = KnowledgeGraphRetriever(people, llm=ScriptedLLM(error))
    for nodes, trace in (
        engine.retrieve_with_trace("What did marko create?"),
        await engine.aretrieve_with_trace("What did marko create?"),
    ):
        assert len(nodes) == 1
        assert any(str(error) in line for line in trace.fallbacks)


class BrokenExtractor(KeywordExtractor):
    def extract(self, question):
        raise RuntimeError("broken")


def test_an_extractor_that_fails_is_stood_in_for(people):
    engine = KnowledgeGraphRetriever(people, keyword_extractor=BrokenExtractor())
    nodes, trace = engine.retrieve_with_trace("What did marko create?")
    assert len(nodes) == 1
    assert any("broken" in line for line in trace.fallbacks)


async def test_functions_and_coroutine_functions_give_keywords(people):
    async def ask(question):
        await asyncio.sleep(0)
        return ["marko"]

    engine = KnowledgeGraphRetriever(people, keyword_extractor=ask)
    assert len(await engine.aretrieve("?")) == 1
    with pytest.raises(GraphRAGTypeError, match="use aretrieve"):
        engine.retrieve("?")
    assert len(await retriever(people).aretrieve("?")) == 1
    for bad in ("marko", [1], None):
        with pytest.raises(GraphRAGTypeError, match="must return strings"):
            KnowledgeGraphRetriever(people, keyword_extractor=lambda _, bad=bad: bad).retrieve("?")


def test_keywords_alone(people):
    engine = retriever(people, ["marko", "Marko", "josh"])
    assert engine.extract_keywords("?").names == ["marko", "josh"]


# --- as a LlamaIndex component ------------------------------------------------------------------


def test_prompts_are_seen_and_updated(people):
    engine = KnowledgeGraphRetriever(people, llm=ScriptedLLM("KEYWORDS: marko"))
    assert {"knowledge_prompt", "keyword_extractor:keyword_synonym_prompt"} <= set(
        engine.get_prompts()
    )
    engine.update_prompts(
        {
            "knowledge_prompt": PromptTemplate("<<{knowledge}>>"),
            "keyword_extractor:keyword_synonym_prompt": PromptTemplate("ASK {question}"),
        }
    )
    (node,), _trace = engine.retrieve_with_trace(QUESTION)
    assert node.text.startswith("<<marko")
    assert engine._keyword_extractor._llm.calls[0].prompt.endswith(f"ASK {QUESTION}")


async def test_in_a_query_engine_sync_and_async(people):
    llm = ScriptedLLM({"(?s)knowledge graph.*lang: java": "He made lop.", "": "KEYWORDS: marko"})
    engine = RetrieverQueryEngine.from_args(KnowledgeGraphRetriever(people, llm=llm), llm=llm)
    assert str(engine.query(QUESTION)) == "He made lop."
    assert str(await engine.aquery(QUESTION)) == "He made lop."
    assert "(person)-[created]->(software)" in llm.calls[-1].prompt


async def test_an_empty_result_gives_an_empty_response(people):
    engine = RetrieverQueryEngine.from_args(retriever(people, ["x"]), llm=ScriptedLLM("?"))
    assert str(engine.query(QUESTION)) == str(await engine.aquery(QUESTION)) == "Empty Response"


@pytest.mark.parametrize(
    "mode", ["reciprocal_rerank", "relative_score", "dist_based_score", "simple"]
)
def test_in_fusion(people, mode):
    parts = [retriever(people, as_paths=True), retriever(people, ["lop"], as_paths=True)]
    fusion = QueryFusionRetriever(
        parts, mode=mode, num_queries=1, use_async=False, llm=ScriptedLLM("?"), similarity_top_k=3
    )
    assert len(fusion.retrieve(QUESTION)) == 3


async def test_async_does_not_block_the_loop(people):
    class Slow(PropertyGraphReader):
        def match_entities(self, *args, **kwargs):
            time.sleep(0.2)
            return super().match_entities(*args, **kwargs)

    engine = retriever(Slow(people))
    start = time.perf_counter()
    await asyncio.gather(*(engine.aretrieve(QUESTION) for _ in range(4)))
    assert time.perf_counter() - start < 0.7


def test_the_trace_is_emitted_as_an_event(people):
    seen = []

    class Handler(BaseEventHandler):
        def handle(self, event, **kwargs):
            if isinstance(event, RetrievalTraceEvent):
                seen.append(event)

    dispatcher = get_dispatcher()
    handlers = list(dispatcher.event_handlers)
    dispatcher.add_event_handler(Handler())
    try:
        retriever(people).retrieve(QUESTION)
    finally:
        dispatcher.event_handlers[:] = handlers
    assert [event.trace.keywords for event in seen] == [("marko",)]
    assert seen[0].model_dump()["trace"]


def test_verbose_says_keywords_and_context(people, capsys):
    retriever(people, verbose=True).retrieve(QUESTION)
    shown = capsys.readouterr().out
    assert "Keywords: marko" in shown
    assert "lop" in shown


def test_a_store_that_fails_is_an_error_but_a_schema_that_fails_is_not(people):
    class Broken(PropertyGraphReader):
        def schema(self):
            raise StoreError("no schema today")

    _, trace = retriever(Broken(people)).retrieve_with_trace("?")
    assert any("no schema today" in line for line in trace.fallbacks)
    Broken.paths = Broken.schema
    Broken.paths = lambda self, ids, **kwargs: self.schema()
    with pytest.raises(StoreError):
        retriever(Broken(people)).retrieve("?")


@pytest.mark.parametrize(
    ("kwargs", "error"),
    [
        ({"graph_traversal_depth": 0}, GraphRAGValueError),
        ({"max_knowledge_sequence": 0}, GraphRAGValueError),
        ({"max_matches": 0}, GraphRAGValueError),
        ({"max_candidates": 3}, GraphRAGValueError),
        ({"keyword_extractor": 3}, GraphRAGTypeError),
        ({"llm": ScriptedLLM(""), "max_keywords": 0}, GraphRAGValueError),
    ],
)
def test_bad_arguments_are_refused(people, kwargs, error):
    with pytest.raises(error):
        KnowledgeGraphRetriever(people, **kwargs)


def test_a_store_of_another_kind_is_refused():
    with pytest.raises(GraphRAGTypeError, match="GraphReader"):
        KnowledgeGraphRetriever(object())


def test_keyword_results_of_an_extractor_of_ones_own(people):
    class Mine(KeywordExtractor):
        def extract(self, question):
            return Keywords(("marko",), ("josh",), split_phrases="never")

    _, trace = KnowledgeGraphRetriever(people, keyword_extractor=Mine()).retrieve_with_trace("?")
    assert set(trace.matches) == {"marko", "josh"}
    assert isinstance(LLMKeywordExtractor(llm=ScriptedLLM("")), KeywordExtractor)


def keyed(store, name, **options):
    return KnowledgeGraphRetriever(store, keyword_extractor=lambda _: [name], **options)


def hostile_graph(*names):
    store = SimplePropertyGraphStore()
    store.upsert_nodes([EntityNode(name=name) for name in names])
    for one, other in pairwise(names):
        store.upsert_relations([Relation(label="r\n]-> ", source_id=one, target_id=other)])
    return store


def test_long_names_are_cut_told_apart_and_counted():
    long = "x" * 10_000
    store = hostile_graph(f"{long}1", "Euler", f"{long}2")
    (node,), trace = keyed(store, "Euler").retrieve_with_trace("?")
    sequences = "\n".join(trace.sequences)
    assert sequences.count(f"{long[:200]}... (") == 2
    assert "names and values cut to 200 characters" in "".join(trace.dropped)
    assert set(node.node.metadata["kg_rel_text"]) == set(trace.sequences)


def test_results_with_lone_surrogates_and_zeros_can_be_sent_on():
    store = hostile_graph("a \ud800", "zero \x00", "line\nbreak \u2028 end")
    for as_paths in (False, True):
        nodes = keyed(store, "zero \x00", as_paths=as_paths).retrieve("?")
        assert "\ufffd" in "".join(node.model_dump_json() for node in nodes)


def test_messages_do_not_repeat_a_long_name():
    _, trace = keyed(hostile_graph("a"), "x" * 10_000).retrieve_with_trace("?")
    assert "no match" in trace.fallbacks[0]
    assert len(trace.fallbacks[0]) < 300
