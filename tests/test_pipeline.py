from __future__ import annotations

import asyncio

import pytest
from llama_index.core import Settings
from llama_index.core.graph_stores import SimplePropertyGraphStore
from llama_index.core.graph_stores.types import Relation
from llama_index.core.response_synthesizers import get_response_synthesizer

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError
from llama_index_graph_rag.pipeline import (
    ExtractKeywords,
    GraphRAGPipeline,
    Operator,
    QueryGraph,
    SynthesizeAnswer,
)
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM

QUERY = "Where was Euler born?"
LINE = "Euler{name: Euler} -[born in]-> Basel{name: Basel}"


@pytest.fixture
def store():
    store = SimplePropertyGraphStore()
    store.upsert_relations([Relation(label="born in", source_id="Euler", target_id="Basel")])
    return store


@pytest.fixture
def llm():
    return ScriptedLLM({"knowledge graph holds": "In Basel.", "": "KEYWORDS: Euler"})


def check(context):
    assert context["query"] == QUERY
    assert context["keywords"] == ["Euler"]
    assert context["knowledge"] == [LINE]
    assert context["answer"] == "In Basel."


async def test_the_chain_gives_query_keywords_knowledge_and_answer(store, llm):
    pipeline = GraphRAGPipeline(store=store, llm=llm)
    pipeline.extract_keywords().query_graph().synthesize_answer()
    check(pipeline.run(query=QUERY))
    check(await pipeline.arun(query=QUERY))


async def test_the_default_chain_runs_when_none_is_given(store, llm):
    check(GraphRAGPipeline().run(query=QUERY, store=store, llm=llm))
    check(await GraphRAGPipeline(store=store, llm=llm).arun(query=QUERY))


def test_operators_take_parameters_when_made(store, llm):
    pipeline = (
        GraphRAGPipeline()
        .extract_keywords(llm=llm)
        .query_graph(store=store, graph_traversal_depth=1, include_schema=False)
        .synthesize_answer(response_synthesizer=get_response_synthesizer(llm=llm))
    )
    check(pipeline.run(query=QUERY))


def test_parameters_of_an_operator_win_over_the_context(store, llm):
    context = {"query": QUERY, "keyword_extractor": lambda _: ["Basel"]}
    operator = ExtractKeywords(keyword_extractor=lambda _: ["Euler"])
    assert operator.run(dict(context))["keywords"] == ["Euler"]
    assert ExtractKeywords().run(dict(context))["keywords"] == ["Basel"]


async def test_each_operator_runs_alone(store, llm):
    context = ExtractKeywords().run({"query": QUERY})
    assert context["keywords"][0] == "Euler"
    context = await QueryGraph(store=store).arun({"keywords": ["Euler"]})
    assert context["knowledge"] == [LINE]
    context = SynthesizeAnswer(llm=llm).run({"query": QUERY, "nodes": context["nodes"]})
    assert context["answer"] == "In Basel."


def test_an_operator_can_be_replaced(store, llm):
    class Fixed(Operator):
        def _process(self, context):
            context["keywords"] = ["Basel"]
            return
            yield

    pipeline = GraphRAGPipeline([ExtractKeywords(), Fixed(), QueryGraph()], store=store)
    context = pipeline.run(query=QUERY)
    assert context["knowledge"] == ["Basel{name: Basel} <-[born in]- Euler{name: Euler}"]
    assert "answer" not in context


def test_nothing_found_is_an_empty_answer_with_the_reason(store, llm):
    context = GraphRAGPipeline(store=store, llm=llm).run(
        query="Who?", keyword_extractor=lambda _: []
    )
    assert (context["knowledge"], context["answer"]) == ([], "Empty Response")
    assert "keywords: the keyword function found none" in context["notes"]
    assert len(context["notes"]) == len(set(context["notes"]))


def test_one_pipeline_runs_again_without_memory(store, llm):
    pipeline = GraphRAGPipeline(store=store, llm=llm)
    check(pipeline.run(query=QUERY))
    assert pipeline.run(query="x", keyword_extractor=lambda _: ["y"])["knowledge"] == []
    check(pipeline.run(query=QUERY))
    assert set(pipeline.parameters) == {"store", "llm"}


def test_the_llm_of_settings_writes_the_answer(store, llm, monkeypatch):
    monkeypatch.setattr(Settings, "_llm", llm)
    context = GraphRAGPipeline(store=store).run(query=QUERY)
    assert context["answer"] == "In Basel."


@pytest.mark.parametrize(
    ("operator", "missing"),
    [(ExtractKeywords(), "query"), (QueryGraph(), "keywords"), (SynthesizeAnswer(), "query")],
)
def test_what_is_missing_is_named(operator, missing, llm):
    with pytest.raises(GraphRAGValueError, match=f"needs '{missing}'"):
        operator.run({"llm": llm})
    with pytest.raises(GraphRAGValueError, match="needs 'store'"):
        QueryGraph().run({"keywords": []})


def test_something_else_than_an_operator_is_refused():
    with pytest.raises(GraphRAGTypeError):
        GraphRAGPipeline([print])


@pytest.mark.parametrize("keywords", ["Euler", 3, [1], [None], {"Euler": 1}, b"Euler"])
def test_keywords_that_are_no_list_of_strings_are_refused(store, keywords):
    with pytest.raises(GraphRAGTypeError, match="keywords is a list of strings"):
        QueryGraph(store=store).run({"query": QUERY, "keywords": keywords})


def test_keywords_of_ones_own_count_once(store):
    context = {"query": QUERY, "keywords": ("Euler", "euler", " ")}
    found = QueryGraph(store=store).run(context)
    assert found["knowledge"] == [LINE]
    assert found["trace"].keywords == ("Euler",)


def test_one_pipeline_serves_event_loops_one_after_the_other_and_within(store, llm):
    pipeline = GraphRAGPipeline(store=store, llm=llm)

    async def sync_within():
        return pipeline.run(query=QUERY)

    for run in (pipeline.arun(query=QUERY), pipeline.arun(query=QUERY), sync_within()):
        check(asyncio.run(run))
