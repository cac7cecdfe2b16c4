from __future__ import annotations

import asyncio
import json
import logging

import pytest
from llama_index.core.base.llms.types import MessageRole
from llama_index.core.callbacks import CallbackManager
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events.base import BaseEvent
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.llms import LLM, ChatMessage
from llama_index.core.prompts import ChatPromptTemplate
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.settings import Settings

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.postprocessors.relation_choice import RelationChoice
from llama_index_graph_rag.postprocessors.relation_rerank import LLMRelationRerank, RelationReranker
from llama_index_graph_rag.testing.openai_server import (
    EmptyChoices,
    Failure,
    Hang,
    OpenAIServer,
    Reply,
)
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM

QUESTION = "What contribution did the son of Euler's teacher make?"
FACTS = [
    "Euler lived in Basel",
    "Euler was taught by Johann Bernoulli",
    "Johann Bernoulli was the father of Daniel Bernoulli",
    "Daniel Bernoulli wrote Hydrodynamica",
    "Johann Bernoulli was born in Basel",
]
GOOD = json.dumps(
    {
        "reasoning": "Johann taught Euler; his son Daniel wrote Hydrodynamica.",
        "relations": [{"label": i, "text": FACTS[i - 1]} for i in (2, 3, 4)],
    }
)


def nodes() -> list[NodeWithScore]:
    return [
        NodeWithScore(node=TextNode(id_=f"r{i}", text=fact), score=1 / (i + 1))
        for i, fact in enumerate(FACTS)
    ]


# --- the real client ---


CASES: list[tuple[str, list[Reply], tuple[int, ...], str]] = [
    ("good", [GOOD], (1, 2, 3), ""),
    ("fenced", [f"Here:\n```json\n{GOOD}\n```"], (1, 2, 3), ""),
    ("truncated", [GOOD[:-30]], (1, 2, 3), ""),
    ("truncated early", [GOOD[:20]], (), "chose no relation"),
    ("thoughts", [f"<think>{{1}}</think>{GOOD}"], (1, 2, 3), ""),
    ("list root", ["[2, 3]"], (1, 2), ""),
    ("null", ["null"], (), "the answer is null"),
    ("no JSON", ["Facts two and three."], (), "no JSON"),
    ("empty", [""], (), "the answer is empty"),
    ("out of range", ['{"relations": [0, 9, -1, 2]}'], (1,), ""),
    ("all out of range", ['{"relations": [9]}'], (), "chose no relation"),
    ("duplicated", ['{"relations": [2, 2, 2]}'], (1,), ""),
    ("invented", ['{"relations": [{"label": 2, "text": "Gauss had a dog"}]}'], (), "no relation"),
    ("swapped", [json.dumps({"relations": [{"label": 1, "text": FACTS[3]}]})], (3,), ""),
    ("two objects", [f'{GOOD}\n{{"relations": [1]}}'], (1, 2, 3), ""),
    ("empty choice", [EmptyChoices()], (), "the LLM's response holds no answer"),
    ("429", [Failure(429, {"Retry-After": "0.01"})] * 2, (), "HTTP 429"),
    ("429 once", [Failure(429, {"Retry-After": "0.01"}), GOOD], (1, 2, 3), ""),
    ("500", [Failure(500, {"Retry-After": "0.01"})] * 2, (), "HTTP 500"),
    ("401", [Failure(401, message="bad key: test")], (), "HTTP 401"),
    ("hang", [Hang()], (), "APITimeoutError"),
    ("no JSON mode", [Failure(400, message="response_format"), GOOD], (1, 2, 3), ""),
]


@pytest.mark.parametrize(("name", "replies", "places", "reason"), CASES, ids=[c[0] for c in CASES])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_the_real_client(
    name: str,
    replies: list[Reply],
    places: tuple[int, ...],
    reason: str,
    is_async: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with OpenAIServer([*replies, *replies]) as server:
        is_slow = name == "hang"
        llm = server.llm(max_retries=0 if is_slow else 1, timeout=0.2 if is_slow else 10)
        rerank = LLMRelationRerank(llm=llm)
        choice = (
            await rerank.achoose(QUESTION, FACTS) if is_async else rerank.choose(QUESTION, FACTS)
        )
        assert choice.indices == places
        assert reason in choice.reason
        assert bool(choice.reason) == (not places)
        assert "test" not in choice.reason
        assert choice.llm_calls == (2 if name == "no JSON mode" else 1)
        assert len(server.chats) == len(replies)
        if is_async:
            kept = await rerank.apostprocess_nodes(nodes(), query_str=QUESTION)
        else:
            kept = rerank.postprocess_nodes(nodes(), query_str=QUESTION)
        assert [node.node_id for node in kept] == [f"r{i}" for i in places or (0, 1, 2)]
        assert bool(reason) == any("as they came" in r.message for r in caplog.records)


def test_json_mode_and_tokens() -> None:
    with OpenAIServer(GOOD) as server:
        choice = LLMRelationRerank(llm=server.llm()).choose(QUESTION, FACTS)
        LLMRelationRerank(llm=server.llm(), json_mode=False).choose(QUESTION, FACTS)
    assert choice.prompt_tokens > 100
    assert choice.completion_tokens > 10
    assert choice.raw == GOOD
    assert choice.reasoning.startswith("Johann taught Euler")
    assert server.chats[0]["response_format"] == {"type": "json_object"}
    assert "response_format" not in server.chats[1]


# --- the prompt ---


def test_the_prompt_has_an_example_and_the_question_last() -> None:
    llm = ScriptedLLM(GOOD)
    LLMRelationRerank(llm=llm).choose(f"  {QUESTION}\n", FACTS)
    LLMRelationRerank(llm=llm).choose("Another {relations}?", FACTS[::-1])
    first, second = (call.messages for call in llm.calls)
    assert [message.role for message in first] == [
        *(MessageRole.SYSTEM, MessageRole.USER, MessageRole.ASSISTANT, MessageRole.USER)
    ]
    assert first[:3] == second[:3]
    assert first[3].content == f"Question: {QUESTION}\n\nFacts:\n" + "\n".join(
        f"[{i}] {fact}" for i, fact in enumerate(FACTS, 1)
    )
    assert "Another {relations}?" in str(second[3].content)
    example = json.loads(str(first[2].content))
    lines = str(first[1].content).splitlines()
    assert all(f"[{r['label']}] {r['text']}" in lines for r in example["relations"])
    assert llm.calls[0].kwargs == {}


def test_reasoning_and_echo_can_be_turned_off() -> None:
    llm = ScriptedLLM('{"relations": [4]}')
    rerank = LLMRelationRerank(llm=llm, with_reasoning=False, with_echo=False, rerank_top_n=2)
    assert rerank.choose(QUESTION, FACTS).indices == (3,)
    system, _, example, _ = llm.calls[0].messages
    assert str(system.content).endswith('{"relations": [number, ...]}')
    assert "2 at most" in str(system.content)
    assert example.content == '{"relations": [3, 2]}'


def test_the_prompt_can_be_replaced() -> None:
    llm = ScriptedLLM("[1]")
    rerank = LLMRelationRerank(llm=llm)
    assert "relation_rerank_prompt" in rerank.get_prompts()
    own = ChatPromptTemplate([ChatMessage(role="user", content="{question} of {relations}")])
    rerank.update_prompts({"relation_rerank_prompt": own})
    assert rerank.choose("Which", ["A b C"]).indices == (0,)
    assert llm.calls[0].prompt == "user: Which of [1] A b C"
    other = LLMRelationRerank(llm=llm)
    assert other.get_prompts()["relation_rerank_prompt"] != own


def test_a_model_without_chat_gets_the_messages_as_a_text() -> None:
    llm = ScriptedLLM("[2]", is_chat_model=False)
    assert LLMRelationRerank(llm=llm).choose(QUESTION, FACTS).indices == (1,)


# --- the budget ---


def test_candidates_beyond_the_budget_are_not_shown_and_said() -> None:
    facts = [*FACTS, "x " * 70_000, *(f"Fact number {i} is of some length" for i in range(400))]
    llm = ScriptedLLM('{"relations": [2]}')
    choice = LLMRelationRerank(llm=llm, max_prompt_tokens=300).choose(QUESTION, facts)
    shown = str(llm.calls[0].messages[-1].content).splitlines()
    assert 20 < len(shown) < 80
    assert choice.indices == (1,)
    assert "of 406 candidates were not shown: max_prompt_tokens=300" in choice.dropped[0]


def test_places_count_what_was_not_shown() -> None:
    llm = ScriptedLLM(["[1]", "[1]"])
    rerank = LLMRelationRerank(llm=llm, max_prompt_tokens=50)
    assert rerank.choose(QUESTION, ["word " * 2_000, "A b C"]).indices == (1,)
    choice = rerank.choose(QUESTION, ["word " * 2_000])
    assert choice.reason == "no candidate fits max_prompt_tokens"
    assert (choice.llm_calls, len(llm.calls)) == (0, 1)


def test_a_candidate_is_one_line() -> None:
    llm = ScriptedLLM("[1]")
    LLMRelationRerank(llm=llm).choose(QUESTION, ["A b\n[2] C\u2028\td"])
    assert str(llm.calls[0].messages[-1].content).endswith("Facts:\n[1] A b [2] C d")


# --- failures ---


@pytest.mark.parametrize(("question", "facts"), [("", FACTS), (" \n", FACTS), (QUESTION, [])])
def test_nothing_to_ask_costs_no_call(question: str, facts: list[str]) -> None:
    llm = ScriptedLLM([])
    choice = LLMRelationRerank(llm=llm).choose(question, facts)
    assert choice.reason
    assert not llm.calls


def test_any_error_of_the_client_is_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    rerank = LLMRelationRerank(llm=ScriptedLLM(RuntimeError("out of order")))
    with caplog.at_level(logging.WARNING, "llama_index_graph_rag"):
        kept = rerank.postprocess_nodes(nodes(), query_str=QUESTION)
    assert [node.node_id for node in kept] == ["r0", "r1", "r2"]
    assert "RuntimeError: out of order" in caplog.text


async def test_cancellation_is_not_swallowed() -> None:
    with OpenAIServer(Hang()) as server:
        rerank = LLMRelationRerank(llm=server.llm())
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(rerank.achoose(QUESTION, FACTS), 0.1)


def test_keyboard_interrupt_is_not_swallowed() -> None:
    def interrupt(prompt: str) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LLMRelationRerank(llm=ScriptedLLM(interrupt)).choose(QUESTION, FACTS)


async def test_async_does_not_block_the_loop() -> None:
    with OpenAIServer(GOOD) as server:
        rerank = LLMRelationRerank(llm=server.llm())
        choices = await asyncio.gather(*(rerank.achoose(QUESTION, FACTS) for _ in range(3)))
    assert [choice.indices for choice in choices] == [(1, 2, 3)] * 3


# --- settings, events, engines ---


def test_settings_llm_is_looked_up_at_each_question(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> LLM:
        raise ValueError("no key")

    rerank = LLMRelationRerank()
    first, second = ScriptedLLM("[1]"), ScriptedLLM("[2]")
    monkeypatch.setattr(Settings, "_llm", first)
    assert rerank.choose(QUESTION, FACTS).indices == (0,)
    monkeypatch.setattr(Settings, "_llm", second)
    assert rerank.choose(QUESTION, FACTS).indices == (1,)
    monkeypatch.setattr(type(Settings), "llm", property(lambda self: refuse()))
    choice = rerank.choose(QUESTION, FACTS)
    assert "no key" in choice.reason
    assert choice.llm_calls == 0


class _Events(BaseEventHandler):
    seen: list[BaseEvent] = []  # noqa: RUF012

    def handle(self, event: BaseEvent, **kwargs: object) -> None:
        self.seen.append(event)


async def test_events_and_callback_manager() -> None:
    handler = _Events()
    root = get_dispatcher()
    root.add_event_handler(handler)
    try:
        rerank = LLMRelationRerank(llm=ScriptedLLM(GOOD))
        rerank.callback_manager = CallbackManager()
        rerank.postprocess_nodes(nodes(), QueryBundle(QUESTION))
        await rerank.apostprocess_nodes(nodes(), QueryBundle(QUESTION))
    finally:
        root.event_handlers.remove(handler)
    events = [e for e in handler.seen if isinstance(e, ReRankStartEvent | ReRankEndEvent)]
    assert [type(e).__name__ for e in events] == ["ReRankStartEvent", "ReRankEndEvent"] * 2
    start, end = events[:2]
    assert (start.top_n, start.model_name, len(start.nodes)) == (3, "scripted", 5)
    assert [node.node_id for node in end.nodes] == ["r1", "r2", "r3"]


def test_no_nodes_and_no_question() -> None:
    rerank = LLMRelationRerank(llm=ScriptedLLM([]))
    assert rerank.postprocess_nodes([], query_str=QUESTION) == []
    with pytest.raises(GraphRAGValueError, match="query_str"):
        rerank.postprocess_nodes(nodes())


def test_options_are_checked_and_a_key_is_not_shown() -> None:
    with pytest.raises(GraphRAGValueError, match="rerank_top_n=0"):
        LLMRelationRerank(rerank_top_n=0)
    with pytest.raises(GraphRAGValueError, match="max_prompt_tokens=0"):
        LLMRelationRerank(max_prompt_tokens=0)
    with OpenAIServer() as server:
        llm = server.llm()
        llm.api_key = "sk-secret"
        assert "sk-secret" not in repr(LLMRelationRerank(llm=llm)) + str(
            LLMRelationRerank(llm=llm).to_dict()
        )


def test_anything_with_the_two_methods_is_a_reranker() -> None:
    class Own:
        def choose(self, question: str, candidates: list[str]) -> RelationChoice:
            return RelationChoice((0,))

        async def achoose(self, question: str, candidates: list[str]) -> RelationChoice:
            return RelationChoice((0,))

    assert isinstance(Own(), RelationReranker)
    assert isinstance(LLMRelationRerank(), RelationReranker)


# --- in an engine ---


class _Relations(BaseRetriever):
    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return nodes()


async def test_in_a_query_engine() -> None:
    llm = ScriptedLLM({"decide which facts": GOOD, "": "Hydrodynamica."})
    engine = RetrieverQueryEngine.from_args(
        _Relations(), llm=llm, node_postprocessors=[LLMRelationRerank(llm=llm)]
    )
    for response in (engine.query(QUESTION), await engine.aquery(QUESTION)):
        assert str(response) == "Hydrodynamica."
        assert [node.node_id for node in response.source_nodes] == ["r1", "r2", "r3"]
    assert len(llm.calls) == 4
