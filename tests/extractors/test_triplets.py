import asyncio
import json
import logging
import pickle
import threading
from collections import Counter

import pytest
from llama_index.core import Settings
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.extractors.node_triplets import extraction_report, triplets_from_node
from llama_index_graph_rag.extractors.retry import RetryPolicy
from llama_index_graph_rag.extractors.triplets import LLMTripletExtractor
from llama_index_graph_rag.testing.openai_server import Failure, OpenAIServer, ToolCalls
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM

FIELDS = ("subject", "predicate", "object")
SOURCE = NodeRelationship.SOURCE
ANSWER = '{"triplets": [["Ada", "knows", "Bo"]]}'


async def no_wait(_seconds):
    await asyncio.sleep(0)


PATIENT = RetryPolicy(sleep=lambda _seconds: None, async_sleep=no_wait)


def passages(count):
    return [TextNode(id_=f"n{i}", text=f"passage {i}.") for i in range(count)]


def number(prompt):
    return int(prompt.rsplit("passage ", 1)[1].split(".")[0])


def triplet_of(i):
    return (f"S{i}", "is", f"O{i}")


def by_number(prompt):
    return json.dumps({"triplets": [triplet_of(number(prompt))]})


async def call(extractor, nodes, how):
    return extractor(nodes) if how == "sync" else await extractor.acall(nodes)


async def extract(extractor, nodes, how):
    if how == "sync":
        return list(extractor.extract(nodes))
    return [item async for item in extractor.aextract(nodes)]


both = pytest.mark.parametrize("how", ["sync", "async"])


@both
@pytest.mark.parametrize("chat", [True, False])
async def test_triplets_are_left_on_the_right_nodes_in_order(how, chat):
    nodes = passages(20)
    llm = ScriptedLLM(by_number, is_chat_model=chat)
    out = await call(LLMTripletExtractor(llm, retry=PATIENT), nodes, how)
    assert [node.node_id for node in out] == [f"n{i}" for i in range(20)]
    for i, node in enumerate(out):
        assert triplets_from_node(node).triplets == (triplet_of(i),)
    assert len(llm.calls) == 20


@both
async def test_failures_are_listed_and_retried_alone(how, caplog):
    down = True

    def script(prompt):
        i = number(prompt)
        if down and i % 10 == 3:
            return RuntimeError("the model is down")
        if down and i % 10 == 7:
            return "I would rather not."
        return '{"triplets": []}' if i == 5 else by_number(prompt)

    llm = ScriptedLLM(script)
    extractor = LLMTripletExtractor(llm, retry=PATIENT)
    nodes = passages(30)
    with caplog.at_level(logging.WARNING, "llama_index_graph_rag"):
        await call(extractor, nodes, how)
    assert "6 of 30 passages failed" in caplog.text
    report = extraction_report(nodes)
    assert {failure.node_id for failure in report.failures} == {
        "n3", "n13", "n23", "n7", "n17", "n27",
    }  # fmt: skip
    reasons = {failure.node_id: failure.reason for failure in report.failures}
    assert reasons["n3"] == "RuntimeError: the model is down"
    assert "rather not" in reasons["n7"]
    assert report.empty == ("n5",)
    assert report.triplets == 23
    assert len(llm.calls) == 24 + 6 * 5
    down = False
    await call(extractor, nodes, how)
    assert len(llm.calls) == 24 + 6 * 5 + 6
    report = extraction_report(nodes)
    assert (report.triplets, report.failures, report.missing) == (29, (), ())


@both
async def test_a_rough_server_over_http(how):
    seen = {}
    lock = threading.Lock()

    def reply(body):
        prompt = body["messages"][-1]["content"]
        i = number(prompt)
        with lock:
            seen[i] = seen.get(i, 0) + 1
            tries = seen[i]
        if i % 10 == 1:
            return Failure(500)
        if i % 10 == 2 and tries == 1:
            return "no JSON here"
        if i % 10 in (3, 4) and tries == 1:
            return Failure(429, {"Retry-After": "2"})
        return by_number(prompt)

    waits = []

    async def wait(seconds):
        waits.append(seconds)

    policy = RetryPolicy(attempts=3, sleep=waits.append, async_sleep=wait)
    with OpenAIServer(reply) as server:
        extractor = LLMTripletExtractor(server.llm(), retry=policy)
        results = await extract(extractor, passages(20), how)
    found = {number(item.node.text): item for item in results}
    assert {i for i, item in found.items() if item.failure} == {1, 11}
    assert "HTTP 500" in found[1].failure
    assert all(found[i].triplets == (triplet_of(i),) for i in range(20) if i % 10 != 1)
    assert waits.count(2.0) == 4
    assert found[0].usage.calls == 1
    assert found[0].usage.prompt_tokens > 0
    assert found[2].usage.calls == 2
    assert found[1].usage.calls == 3


@both
async def test_function_calls_where_the_model_has_them_else_plain_text(how):
    with OpenAIServer(
        [
            ToolCalls([("Triplets", {"triplets": [dict(zip(FIELDS, "AbC"))]})]),
            Failure(400),
            ANSWER,
            "garbage as arguments",
            ANSWER,
        ]
    ) as server:
        extractor = LLMTripletExtractor(server.llm(), num_workers=1, structured=True, retry=PATIENT)
        results = await extract(extractor, passages(3), how)
        assert sorted(item.triplets[0].subject for item in results) == ["A", "Ada", "Ada"]
        assert ["tools" in body for body in server.chats] == [True, True, False, True, False]
        assert sum(item.usage.calls for item in results) == 5


@both
async def test_a_wrong_key_is_not_tried_again(how):
    with OpenAIServer(lambda body: Failure(401)) as server:
        extractor = LLMTripletExtractor(server.llm(), retry=PATIENT)
        results = await extract(extractor, passages(3), how)
        assert all("HTTP 401" in item.failure for item in results)
        assert len(server.chats) == 3


@both
async def test_nodes_are_drawn_as_workers_come_free(how):
    drawn = []

    def source():
        for node in passages(200):
            drawn.append(node)
            yield node

    extractor = LLMTripletExtractor(ScriptedLLM(by_number), num_workers=2, retry=PATIENT)
    seen = 0
    if how == "sync":
        for _ in extractor.extract(source()):
            seen += 1
            assert len(drawn) <= seen + 8
    else:
        async for _ in extractor.aextract(source()):
            seen += 1
            assert len(drawn) <= seen + 8
    assert seen == 200


class Gate(ScriptedLLM):
    """Counts the calls that are in flight at once."""

    async def achat(self, messages, **kwargs):
        COUNTS["now"] += 1
        COUNTS["most"] = max(COUNTS["most"], COUNTS["now"])
        await asyncio.sleep(0.001)
        COUNTS["now"] -= 1
        return await super().achat(messages, **kwargs)


COUNTS = {"now": 0, "most": 0}


async def test_num_workers_bounds_the_calls_in_flight():
    await LLMTripletExtractor(Gate(by_number), num_workers=3, retry=PATIENT).acall(passages(20))
    assert COUNTS == {"now": 0, "most": 3}


async def test_closing_early_stops_the_rest():
    llm = ScriptedLLM(by_number)
    extractor = LLMTripletExtractor(llm, num_workers=1, retry=PATIENT)
    iterator = extractor.extract(passages(500))
    next(iterator)
    iterator.close()
    results = extractor.aextract(passages(500))
    await anext(results)
    await results.aclose()
    assert len(llm.calls) < 50
    assert len(asyncio.all_tasks()) == 1


@both
async def test_empty_passages_cost_no_call_and_state_nothing(how):
    nodes = [TextNode(id_="a", text="  "), TextNode(id_="b", text="")]
    llm = ScriptedLLM(ANSWER)
    await call(LLMTripletExtractor(llm, retry=PATIENT), nodes, how)
    assert not llm.calls
    assert extraction_report(nodes).empty == ("a", "b")


async def test_limit_language_and_braces_reach_the_prompt():
    text = "欧拉 wrote f(x) = {text} and {max_triplets}."
    llm = ScriptedLLM('{"triplets": [["欧拉", "b", "C"], ["d", "e", "f"], ["g", "h", "i"]]}')
    [item] = LLMTripletExtractor(llm, max_triplets_per_passage=2, retry=PATIENT).extract(
        [TextNode(text=text)]
    )
    assert text in llm.calls[0].prompt
    assert "at most 2" in llm.calls[0].prompt
    assert [triplet.subject for triplet in item.triplets] == ["欧拉", "d"]
    assert item.invalid[0].reason == "over the limit of 2 triplets a passage"


def test_prompts_are_got_and_updated():
    llm = ScriptedLLM(ANSWER)
    extractor = LLMTripletExtractor(llm, retry=PATIENT)
    assert list(extractor.get_prompts()) == ["triplet_prompt"]
    extractor.update_prompts({"triplet_prompt": PromptTemplate("Mine: {text}")})
    extractor([TextNode(text="hello")])
    assert llm.calls[0].prompt == "user: Mine: hello"


def test_the_default_llm_is_looked_up_late(monkeypatch):
    extractor = LLMTripletExtractor(retry=PATIENT)
    monkeypatch.setattr(Settings, "_llm", ScriptedLLM(ANSWER))
    [node] = extractor([TextNode(text="Ada knows Bo.")])
    assert triplets_from_node(node).triplets == (("Ada", "knows", "Bo"),)


def test_no_key_in_what_it_shows_and_it_pickles():
    with OpenAIServer() as server:
        llm = server.llm()
        llm.api_key = "sk-secret"
        extractor = LLMTripletExtractor(llm, retry=RetryPolicy())
    for shown in (repr(extractor), str(extractor), str(extractor.to_dict())):
        assert "sk-secret" not in shown
    assert pickle.loads(pickle.dumps(extractor)).num_workers == 4


@pytest.mark.parametrize("name", ["num_workers", "max_triplets_per_passage"])
def test_bad_arguments(name):
    with pytest.raises(GraphRAGValueError, match=f"{name}=0 must be at least 1"):
        LLMTripletExtractor(**{name: 0})


async def test_in_an_ingestion_pipeline_sync_and_async():
    extractor = LLMTripletExtractor(ScriptedLLM(by_number), retry=PATIENT)
    pipeline = IngestionPipeline(transformations=[extractor])
    source = RelatedNodeInfo(node_id="doc")
    for run in ("sync", "async"):
        nodes = [TextNode(text=f"passage {i}.", relationships={SOURCE: source}) for i in range(9)]
        out = pipeline.run(nodes=nodes) if run == "sync" else await pipeline.arun(nodes=nodes)
        for i, node in enumerate(out):
            assert triplets_from_node(node).triplets == (triplet_of(i),)
        assert {node.ref_doc_id for node in out} == {"doc"}


async def test_work_goes_on_while_the_consumer_is_busy():
    started = threading.Semaphore(0)

    def script(prompt):
        started.release()
        return by_number(prompt)

    iterator = LLMTripletExtractor(ScriptedLLM(script), num_workers=2).extract(passages(100))
    next(iterator)
    for _ in range(8):  # the first window runs without another pull
        assert started.acquire(timeout=5)
    iterator.close()


@both
async def test_an_llm_that_is_down_is_soon_left_alone(how):
    llm = ScriptedLLM(lambda _: ConnectionError("gone"))
    retry = RetryPolicy(attempts=2, sleep=PATIENT.sleep, async_sleep=no_wait)
    extractor = LLMTripletExtractor(llm, num_workers=1, retry=retry, give_up_after=3)
    found = await extract(extractor, passages(20), how)
    assert len(llm.calls) == 6
    assert Counter(item.failure for item in found) == {
        "ConnectionError: gone": 3,
        "not asked, since the LLM failed on 3 passages in a row: ConnectionError: gone": 17,
    }
    # The next run asks again.
    assert len(await extract(extractor, passages(20), how)) == 20
    assert len(llm.calls) == 12


@both
async def test_an_llm_that_answers_now_and_then_is_asked_on(how):
    def fails_often(prompt):
        place = number(prompt)
        if place % 3 == 1:
            return "no idea"
        return by_number(prompt) if place % 3 == 2 else ConnectionError("gone")

    llm = ScriptedLLM(fails_often)
    extractor = LLMTripletExtractor(
        llm, num_workers=1, retry=RetryPolicy(attempts=1), give_up_after=2
    )
    found = await extract(extractor, passages(12), how)
    assert len(llm.calls) == 12
    assert sum(item.failure is None for item in found) == 4
