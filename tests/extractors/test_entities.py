from __future__ import annotations

import pytest
from llama_index.core.prompts import PromptTemplate

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.extractors.entities import LLMEntityExtractor
from llama_index_graph_rag.extractors.query import QueryEntity, as_entity_extractor
from llama_index_graph_rag.graph.snapshot import (
    EntityKey,
    GraphSnapshot,
    PassageKey,
    RelationKey,
)
from llama_index_graph_rag.identity import entity_id
from llama_index_graph_rag.testing.openai_server import Failure, Hang, OpenAIServer, Reply
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM
from llama_index_graph_rag.triplets import Triplet

TRIPLET = Triplet("Leonhard Euler", "lived in", "Basel")
GRAPH = GraphSnapshot.empty().with_changes(
    entities=[EntityKey(TRIPLET.subject_id, "Leonhard Euler"), EntityKey(TRIPLET.object_id, "B")],
    relations=[RelationKey(TRIPLET.id, TRIPLET.subject_id, TRIPLET.object_id)],
    passages=[PassageKey("p", "d", (TRIPLET.id,), "", "")],
)


@pytest.mark.parametrize(
    "answer",
    [
        '{"entities": ["leonhard Euler", "Gauss"]}',
        '["leonhard Euler", "Gauss", "gauss"]',
        '```json\n{"Entities": [{"name": "leonhard Euler"}, {"entity": "Gauss"}]}\n```',
        '<think>Hm</think> {"named_entities": ["leonhard Euler", "Gauss"',
    ],
)
async def test_names_with_the_ids_of_those_that_the_graph_knows(answer: str) -> None:
    extractor = as_entity_extractor(LLMEntityExtractor(ScriptedLLM(answer)))
    found = extractor.extract("Did Euler meet Gauss?", GRAPH)
    assert found.entities == (
        QueryEntity("leonhard Euler", (entity_id("Leonhard Euler"),)),
        QueryEntity("Gauss"),
    )
    assert (found.reason, found.raw, found.llm_calls) == ("", answer, 1)
    assert await extractor.aextract("Did Euler meet Gauss?", GRAPH) == found


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Failure(500), "HTTP 500"),
        (Failure(429), "HTTP 429"),
        (Hang(), "APITimeoutError"),
        ("I see none.", "no JSON"),
        ("null", "null"),
        ('{"entities": []}', "the LLM named no entity"),
    ],
)
async def test_a_failure_is_a_reason(
    reply: Reply, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with OpenAIServer(reply) as server:
        extractor = LLMEntityExtractor(server.llm(timeout=0.2 if isinstance(reply, Hang) else 10))
        for found in (extractor.extract("Euler?", GRAPH), await extractor.aextract("E?", GRAPH)):
            assert not found.entities
            assert reason in found.reason
    assert reason in caplog.text


def test_too_many_names_are_cut_and_said() -> None:
    llm = ScriptedLLM(str([f"name {i}" for i in range(30)]))
    found = LLMEntityExtractor(llm, max_entities=4).extract("?!", GRAPH)
    assert len(found) == 4
    assert found.reason == "the LLM named 30 entities: 4 were taken"
    assert "at most 4" in llm.calls[0].prompt


def test_an_empty_question_costs_no_call() -> None:
    llm = ScriptedLLM([])
    assert LLMEntityExtractor(llm).extract(" \n", GRAPH).reason == "the question is empty"
    assert not llm.calls


def test_the_prompt_can_be_replaced() -> None:
    llm = ScriptedLLM("[]")
    extractor = LLMEntityExtractor(llm)
    assert "query_entities_prompt" in extractor.get_prompts()
    extractor.update_prompts({"query_entities_prompt": PromptTemplate("Names in {question}")})
    extractor.extract("X?", GRAPH)
    assert llm.calls[0].prompt == "user: Names in X?"


def test_options_are_checked_and_nothing_is_resolved_early() -> None:
    with pytest.raises(GraphRAGValueError, match="max_entities=0"):
        LLMEntityExtractor(max_entities=0)
    assert LLMEntityExtractor().llm is None
