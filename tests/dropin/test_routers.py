"""RouterRetriever, RouterQueryEngine and SubQuestionQueryEngine choose ours among others."""

from __future__ import annotations

import json

import pytest
from choosing_llm import ANSWER
from llama_index.core.query_engine import (
    RetrieverQueryEngine,
    RouterQueryEngine,
    SubQuestionQueryEngine,
)
from llama_index.core.question_gen import LLMQuestionGenerator
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.retrievers import RouterRetriever
from llama_index.core.selectors import LLMMultiSelector, LLMSingleSelector
from llama_index.core.tools import QueryEngineTool, RetrieverTool

from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM

SECOND = '[{"choice": 2, "reason": "several hops"}]'
BOTH = '[{"choice": 1, "reason": "near"}, {"choice": 2, "reason": "several hops"}]'


def retriever_tools(*retrievers):
    return [RetrieverTool.from_defaults(each, name=f"r{i}") for i, each in enumerate(retrievers)]


async def test_router_retriever(retriever, vector_retriever, question) -> None:
    ours = [node.node_id for node in retriever.retrieve(question)]
    llm = ScriptedLLM(SECOND)
    router = RouterRetriever.from_defaults(
        retriever_tools(vector_retriever, retriever),
        llm=llm,
        selector=LLMSingleSelector.from_defaults(llm=llm),
    )
    assert [node.node_id for node in router.retrieve(question)] == ours
    assert [node.node_id for node in await router.aretrieve(question)] == ours


async def test_router_retriever_of_both(retriever, vector_retriever, question) -> None:
    every = {node.node_id for r in (retriever, vector_retriever) for node in r.retrieve(question)}
    llm = ScriptedLLM(BOTH)
    router = RouterRetriever.from_defaults(
        retriever_tools(vector_retriever, retriever),
        llm=llm,
        selector=LLMMultiSelector.from_defaults(llm=llm),
    )
    for nodes in (router.retrieve(question), await router.aretrieve(question)):
        assert {node.node_id for node in nodes} == every
        assert len(nodes) == len(every)


def engine_tools(*retrievers, streaming=False):
    return [
        QueryEngineTool.from_defaults(
            RetrieverQueryEngine.from_args(
                each, llm=ScriptedLLM(f"Answer {i}."), streaming=streaming
            ),
            name=f"tool{i}",
            description=f"retriever {i}",
        )
        for i, each in enumerate(retrievers)
    ]


@pytest.mark.parametrize("streaming", [False, True])
async def test_router_query_engine(retriever, vector_retriever, question, streaming) -> None:
    llm = ScriptedLLM(SECOND)
    router = RouterQueryEngine.from_defaults(
        engine_tools(vector_retriever, retriever, streaming=streaming),
        llm=llm,
        selector=LLMSingleSelector.from_defaults(llm=llm),
    )
    response = router.query(question)
    assert len(response.source_nodes) == 4
    assert str(response) == "Answer 1."
    response = await router.aquery(question)
    text = "".join([t async for t in response.response_gen]) if streaming else str(response)
    assert text == "Answer 1."


@pytest.mark.parametrize("use_async", [False, True])
async def test_sub_questions(retriever, question, use_async) -> None:
    questions = [
        {"sub_question": "Who was Euler's teacher?", "tool_name": "tool0"},
        {"sub_question": "What did Daniel Bernoulli write?", "tool_name": "tool0"},
    ]
    generator = ScriptedLLM(json.dumps({"items": questions}))
    engine = SubQuestionQueryEngine.from_defaults(
        engine_tools(retriever),
        llm=ScriptedLLM([]),
        question_gen=LLMQuestionGenerator.from_defaults(llm=generator),
        response_synthesizer=get_response_synthesizer(llm=ScriptedLLM(ANSWER), use_async=use_async),
        verbose=False,
        use_async=use_async,
    )
    for response in (engine.query(question), await engine.aquery(question)):
        assert str(response) == ANSWER
        found = {node.node.node_id for node in response.source_nodes}
        assert {"leonhard-euler", "daniel-bernoulli"} <= found
