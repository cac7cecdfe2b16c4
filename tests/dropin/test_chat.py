"""Chat engines over the index, and their second turn."""

from __future__ import annotations

import pytest
from choosing_llm import ANSWER, choosing_llm, is_rerank
from llama_index.core.chat_engine import CondensePlusContextChatEngine
from llama_index.core.chat_engine.types import ChatMode
from llama_index.core.postprocessor import SimilarityPostprocessor

from llama_index_graph_rag import GraphRAGTypeError
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM

# LlamaIndex's chat memory keeps a thread of SQLite beyond its loop.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

FOLLOW_UP = "And which book did he write?"
STANDALONE = "Which book did Daniel Bernoulli write?"
MODES = ["simple", "context", "condense_question", "condense_plus_context", "best"]


def talking() -> ScriptedLLM:
    """Rewrites the follow-up as a question of its own, and answers everything else."""

    def answer(prompt: str) -> str:
        condensing = "standalone" in prompt.casefold() and FOLLOW_UP in prompt
        return STANDALONE if condensing else ANSWER

    return ScriptedLLM(answer)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_second_turn(retriever, question, asynchronous, streaming) -> None:
    llm = talking()
    engine = CondensePlusContextChatEngine.from_defaults(retriever, llm=llm)
    found = [await say(engine, text, asynchronous, streaming) for text in (question, FOLLOW_UP)]
    assert [text for text, _ in found] == [ANSWER, ANSWER]
    assert "leonhard-euler" in found[0][1]
    assert found[1][1][0] == "daniel-bernoulli"
    assert [message.content for message in engine.chat_history] == [
        question,
        ANSWER,
        FOLLOW_UP,
        ANSWER,
    ]
    engine.reset()
    assert engine.chat_history == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("streaming", [False, True])
async def test_every_mode_of_the_index(index, question, mode, streaming) -> None:
    for asynchronous in (False, True):
        llm = talking()
        engine = index.as_chat_engine(mode, llm, rerank_llm=None, similarity_top_k=2)
        for text in (question, FOLLOW_UP):
            answer, ids = await say(engine, text, asynchronous, streaming)
            assert answer == ANSWER
            # LlamaIndex loses the sources of a condensed question that is answered in an
            # asynchronous stream.
            lost = mode == "condense_question" and asynchronous and streaming
            assert len(ids) == (0 if mode == "simple" or lost else 2)


async def test_the_enum_too_and_a_rerank(index, question, llm) -> None:
    engine = index.as_chat_engine(ChatMode.CONTEXT, llm, similarity_top_k=2)
    for asynchronous in (False, True):
        answer, ids = await say(engine, question, asynchronous, False)
        assert (answer, ids) == (ANSWER, ["leonhard-euler", "daniel-bernoulli"])
    assert sum(is_rerank(call.prompt) for call in llm.calls) == 2

    writer, chooser = talking(), choosing_llm("Daniel Bernoulli wrote Hydrodynamica")
    index.as_chat_engine("condense_question", writer, rerank_llm=chooser).chat(question)
    assert len(chooser.calls) == 1


def test_a_condensed_question_goes_to_an_engine_with_all_options(index, question) -> None:
    llm = talking()
    engine = index.as_chat_engine(
        "condense_question",
        llm,
        rerank_llm=None,
        response_mode="tree_summarize",
        node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=2.0)],
    )
    response = engine.chat(question)
    assert (str(response), response.source_nodes) == ("Empty Response", [])


@pytest.mark.parametrize("mode", ["react", "openai", "nonsense"])
def test_other_modes_say_what_to_do(index, mode) -> None:
    with pytest.raises(GraphRAGTypeError, match="condense_plus_context"):
        index.as_chat_engine(mode, ScriptedLLM([]))


async def say(engine, text: str, asynchronous: bool, streaming: bool) -> tuple[str, list[str]]:
    """Return the answer to one turn and the ids of the passages behind it."""
    if streaming:
        if asynchronous:
            response = await engine.astream_chat(text)
            answer = "".join([token async for token in response.async_response_gen()])
        else:
            response = engine.stream_chat(text)
            answer = "".join(response.response_gen)
    else:
        response = await engine.achat(text) if asynchronous else engine.chat(text)
        answer = str(response)
    return answer, [node.node.node_id for node in response.source_nodes]
