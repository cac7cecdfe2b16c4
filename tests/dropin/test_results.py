"""What comes back: scores, identity, plain data, and the trace."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest
from choosing_llm import WAY, choosing_llm
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

from llama_index_graph_rag import GraphNodeWithScore, GraphRAGTrace, RetrievalTraceEvent
from llama_index_graph_rag.demo import load_demo
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM

QUESTIONS = [q.question for q in load_demo().questions]
ODD = ["?", "Who?", "zzz qqq", "🧮", "贝努利是谁?", "' or 1 == 1", "x" * 5000]


@pytest.mark.parametrize("ranking", ["hop_walk", "pagerank", "dense"])
@pytest.mark.parametrize("asked", QUESTIONS + ODD)
async def test_scores(index, ranking, asked) -> None:
    retriever = index.as_retriever(similarity_top_k=30, ranking=ranking)
    nodes = retriever.retrieve(asked)
    assert len(nodes) == len(load_demo().nodes)
    scores = [node.score for node in nodes]
    assert all(type(score) is float and math.isfinite(score) for score in scores)
    assert all(0 < score <= 1 for score in scores)
    assert all(one > other for one, other in pairwise(scores))
    again = await retriever.aretrieve(asked)
    assert [(n.node_id, n.score) for n in again] == [(n.node_id, n.score) for n in nodes]


@pytest.mark.parametrize("dense_fill", [True, False])
def test_scores_after_a_choice(index, question, dense_fill) -> None:
    for place in range(5):
        llm = choosing_llm(*(triplet.text for triplet in load_demo().triplets[3 * place]))
        options = {"similarity_top_k": 30, "dense_fill": dense_fill}
        scores = [n.score for n in index.as_retriever(llm=llm, **options).retrieve(question)]
        assert len(scores) > 1
        assert all(0 < score <= 1 for score in scores)
        assert all(one > other for one, other in pairwise(scores))


def test_nodes_are_plain_data_and_those_that_were_stored(index, question) -> None:
    filters = MetadataFilters(filters=[MetadataFilter(key="place", value=20, operator="<")])
    stored = {node.node_id: node for node in load_demo().nodes}
    for node in index.as_retriever(similarity_top_k=30, filters=filters).retrieve(question):
        assert isinstance(node, GraphNodeWithScore)
        json.dumps(node.node.to_dict())
        json.dumps(node.to_dict())
        assert json.loads(json.dumps(node.model_dump(mode="json")))["score"] == node.score
        assert node.node.get_content() == stored[node.node_id].get_content()
        assert set(node.node.metadata) <= {"title", "place", "family", "tags", "odd"}
        assert node.node.ref_doc_id.startswith("book-")


def test_results_are_fresh_each_time(retriever, question) -> None:
    first = retriever.retrieve(question)
    for node in first:
        node.score = -1.0
        node.node.metadata["mine"] = True
        node.node.set_content("changed")
    second = retriever.retrieve(question)
    assert all(node.score > 0 and "mine" not in node.node.metadata for node in second)
    assert all(node.node.get_content() != "changed" for node in second)


class _Traces(BaseEventHandler):
    seen: list[GraphRAGTrace] = []  # noqa: RUF012

    def handle(self, event, **kwargs) -> None:
        if isinstance(event, RetrievalTraceEvent):
            self.seen.append(event.trace)


async def test_the_trace_tells_all_and_is_the_events_too(index, question) -> None:
    llm = choosing_llm(*WAY)
    retriever = index.as_retriever(llm=llm, similarity_top_k=3)
    handler, root = _Traces(), get_dispatcher()
    root.add_event_handler(handler)
    try:
        answers = [
            retriever.retrieve_with_trace(f"  {question}\n"),
            await retriever.aretrieve_with_trace(question),
        ]
    finally:
        root.event_handlers.remove(handler)
    for (nodes, trace), seen in zip(answers, handler.seen, strict=True):
        assert seen is trace
        assert trace.question == question
        assert trace.entities[0].text == "Leonhard Euler"
        assert 0 < len(trace.relations) <= 50
        assert [hit.similarity for hit in trace.relations] == sorted(
            (hit.similarity for hit in trace.relations), reverse=True
        )
        assert trace.passages[0].similarity <= 1 + 1e-6
        assert trace.expansion[0] > 0
        assert trace.expansion[1] > 0
        assert {hit.text for hit in trace.chosen} == set(WAY)
        assert {hit.text for hit in trace.chosen} <= {hit.text for hit in trace.candidates}
        assert trace.reasoning == "Step by step."
        assert json.loads(trace.llm_answer)["reasoning"] == "Step by step."
        assert trace.fallbacks == []
        assert [(r.id, r.score) for r in trace.results] == [(n.node_id, n.score) for n in nodes]
        assert [r.origin for r in trace.results] == ["chosen", "chosen", "ranking"]
        assert [r.relations for r in trace.results] == [n.relations for n in nodes]
        assert trace.results[0].relations[0].text == WAY[0]
        assert trace.calls["llm"] == trace.calls["embedding"] == 1
        assert {"total", "search", "get", "llm", "ranking"} <= set(trace.milliseconds)
        assert trace.milliseconds["total"] >= trace.milliseconds["search"]
        written = json.loads(RetrievalTraceEvent(trace=trace).model_dump_json())["trace"]
        assert written["question"] == question
        assert written["calls"] == dict(trace.calls)
        assert [result[0] for result in written["results"]] == [node.node_id for node in nodes]


@pytest.mark.parametrize("answer", [RuntimeError("it is down"), "no idea", '{"relations": []}'])
async def test_an_llm_that_fails_costs_quality_only(index, question, answer) -> None:
    ranked = index.as_retriever(similarity_top_k=3).retrieve(question)
    retriever = index.as_retriever(llm=ScriptedLLM(answer), similarity_top_k=3)
    for nodes, trace in (
        retriever.retrieve_with_trace(question),
        await retriever.aretrieve_with_trace(question),
    ):
        assert [n.node_id for n in nodes] == [n.node_id for n in ranked]
        assert len(trace.fallbacks) == 1
        assert trace.fallbacks[0].startswith("relation rerank: ")
        assert trace.chosen == []
