from __future__ import annotations

import pytest
from llama_index.core.llms import ChatMessage

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM

HELLO = [ChatMessage(role="system", content="Be kind."), ChatMessage(role="user", content="Hello")]


async def test_all_ways_to_call_draw_on_one_script() -> None:
    llm = ScriptedLLM([f"answer {i}" for i in range(8)])
    assert llm.complete("p").text == "answer 0"
    assert llm.chat(HELLO).message.content == "answer 1"
    assert (await llm.acomplete("p")).text == "answer 2"
    assert (await llm.achat(HELLO)).message.content == "answer 3"
    assert [r.delta for r in llm.stream_complete("p")] == ["answer", " 4"]
    assert [r.message.content for r in llm.stream_chat(HELLO)] == ["answer", "answer 5"]
    assert [r.text async for r in await llm.astream_complete("p")] == ["answer", "answer 6"]
    assert [r.delta async for r in await llm.astream_chat(HELLO)] == ["answer", " 7"]
    assert len(llm.calls) == 8
    assert llm.calls[1].prompt == "system: Be kind.\nuser: Hello"
    assert llm.calls[1].messages == tuple(HELLO)


def test_patterns_functions_and_errors() -> None:
    llm = ScriptedLLM({"France": "Paris", "down": ConnectionError("down"), r"\d": "number"})
    assert llm.complete("capital of France").text == "Paris"
    assert llm.complete("1 + 1").text == "number"
    with pytest.raises(ConnectionError):
        llm.complete("down")
    with pytest.raises(GraphRAGValueError, match="no pattern"):
        llm.complete("else")
    assert ScriptedLLM(str.upper).complete("hello").text == "HELLO"


def test_a_call_too_many_is_an_error() -> None:
    llm = ScriptedLLM(["one"])
    llm.complete("p")
    with pytest.raises(GraphRAGValueError, match=r"call 2 .* 1 answers"):
        llm.complete("p")


def test_keyword_arguments_and_metadata() -> None:
    llm = ScriptedLLM("x", is_chat_model=False, model="m")
    llm.chat(HELLO, response_format={"type": "json_object"})
    assert llm.calls[0].kwargs == {"response_format": {"type": "json_object"}}
    assert (llm.metadata.is_chat_model, llm.metadata.model_name) == (False, "m")
    assert list(ScriptedLLM("").stream_complete("p"))[-1].text == ""
