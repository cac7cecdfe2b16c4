"""RetrieverTool and QueryEngineTool in a FunctionAgent, with the real OpenAI client."""

from __future__ import annotations

import pytest
from choosing_llm import ANSWER
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.tools import QueryEngineTool, RetrieverTool

from llama_index_graph_rag.testing.openai_server import OpenAIServer, ToolCalls
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM


def passages_tool(retriever):
    return RetrieverTool.from_defaults(retriever, name="passages", description="Finds passages.")


def answers_tool(retriever):
    engine = RetrieverQueryEngine.from_args(retriever, llm=ScriptedLLM(ANSWER))
    return QueryEngineTool.from_defaults(engine, name="passages", description="Answers.")


@pytest.mark.parametrize("tool", [passages_tool, answers_tool])
@pytest.mark.parametrize("streaming", [False, True])
async def test_in_a_function_agent(retriever, question, tool, streaming) -> None:
    script = [ToolCalls([("passages", {"input": question})]), "It was Daniel Bernoulli."]
    with OpenAIServer(script) as server:
        agent = FunctionAgent(tools=[tool(retriever)], llm=server.llm(), streaming=streaming)
        response = await agent.run(question)
        told = str(server.chats[1]["messages"])
    assert str(response) == "It was Daniel Bernoulli."
    assert (ANSWER if tool is answers_tool else "Hydrodynamica") in told


async def test_the_tools_question_is_stripped(retriever, question) -> None:
    tool = passages_tool(retriever)
    expected = [node.node_id for node in retriever.retrieve(question)]
    for output in (tool.call(input=question), await tool.acall(input=question)):
        assert len(output.raw_output) == 4
    _, trace = retriever.retrieve_with_trace(f"\n{question}\n")
    assert trace.question == question
    assert [result.id for result in trace.results] == expected
