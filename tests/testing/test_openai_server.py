from __future__ import annotations

import numpy as np
import openai
import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from pydantic import BaseModel

from llama_index_graph_rag.testing.openai_server import (
    EmptyChoices,
    Failure,
    Hang,
    OpenAIServer,
    ToolCalls,
    hash_embedding,
)


class Person(BaseModel):
    name: str
    born: int


async def test_chat_plain_and_streamed_sync_and_async() -> None:
    with OpenAIServer("one two  three") as server:
        llm, messages = server.llm(), [ChatMessage(role="user", content="Hi")]
        assert llm.complete("Hi").text == "one two  three"
        assert "".join(r.delta or "" for r in llm.stream_complete("Hi")) == "one two  three"
        assert (await llm.achat(messages)).message.content == "one two  three"
        stream = await llm.astream_chat(messages)
        assert [r.message.content async for r in stream][-1] == "one two  three"
        assert [body.get("stream") for body in server.chats] == [False, True, False, True]
        assert server.chats[0]["messages"] == [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("model", ["gpt-4o-mini", "gpt-4-turbo"])
async def test_structured_output(model: str) -> None:
    prompt = PromptTemplate("Who is {name}?")
    with OpenAIServer('{"name": "Euler", "born": 1707}') as server:
        llm = server.llm(model=model)
        expected = Person(name="Euler", born=1707)
        assert llm.structured_predict(Person, prompt, name="Euler") == expected
        assert await llm.astructured_predict(Person, prompt, name="Euler") == expected
        answer = llm.as_structured_llm(Person).complete("Who is Euler?")
        assert answer.raw == expected


def test_tool_calls() -> None:
    tool = FunctionTool.from_defaults(lambda question: "ok", name="search", description="d")
    with OpenAIServer([ToolCalls([("search", {"question": "Euler?"})]), "done"]) as server:
        llm = server.llm()
        response = llm.chat_with_tools([tool], user_msg="Find Euler")
        [call] = llm.get_tool_calls_from_response(response)
        assert (call.tool_name, call.tool_kwargs) == ("search", {"question": "Euler?"})
        assert llm.chat_with_tools([tool], user_msg="Go on").message.content == "done"


def test_failures_and_retries() -> None:
    replies = [Failure(429, {"Retry-After": "0.01"}), Failure(500), "at last"]
    with OpenAIServer(replies) as server:
        client = server.llm(max_retries=1)._get_client()
        with pytest.raises(openai.InternalServerError):
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
        assert len(server.chats) == 2
        assert server.llm().complete("x").text == "at last"
        with pytest.raises(openai.InternalServerError, match="only 3 replies"):
            server.llm().complete("x")


async def test_hang_and_empty_choices() -> None:
    with OpenAIServer([Hang(), Hang(), EmptyChoices()]) as server:
        llm = server.llm(timeout=0.1)
        with pytest.raises(openai.APITimeoutError):
            llm.complete("x")
        with pytest.raises(openai.APITimeoutError):
            await llm.acomplete("x")
        with pytest.raises(IndexError):
            server.llm().complete("x")


def test_a_function_of_the_body() -> None:
    def reply(body: object) -> str:
        assert isinstance(body, dict)
        return str(body["messages"][-1]["content"]).upper()

    with OpenAIServer(reply) as server:
        assert server.llm().complete("hello").text == "HELLO"


async def test_embeddings() -> None:
    with OpenAIServer(dimension=32) as server:
        model = server.embed_model()
        vectors = model.get_text_embedding_batch(["Euler studied", "Euler taught", "a cat"])
        assert np.allclose(vectors[0], hash_embedding("Euler studied", 32))
        near, far = np.dot(vectors[0], vectors[1]), np.dot(vectors[0], vectors[2])
        assert near > far + 0.2
        assert np.allclose(await model.aget_query_embedding("a cat"), vectors[2])
        assert not server.chats
        assert len(server.requests) == 2


def test_another_path_is_not_found() -> None:
    with OpenAIServer() as server:
        client = server.llm()._get_client()
        with pytest.raises(openai.NotFoundError):
            client.completions.create(model="m", prompt="x")
