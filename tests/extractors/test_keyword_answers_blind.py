"""Answers written, with their readings, before the parser was looked at: it had no say in them."""

import json
from pathlib import Path

import pytest

from llama_index_graph_rag.extractors.keywords import LLMKeywordExtractor
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM

CASES = json.loads(Path(__file__).with_name("keyword_answers_blind.json").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["answer"][:30])
def test_an_answer_is_read_as_a_careful_human_reads_it(case):
    extractor = LLMKeywordExtractor(llm=ScriptedLLM(case["answer"]), fallback=None)
    found = extractor.extract("Which question was it?")
    assert list(found.keywords) == case["keywords"]
    assert list(found.synonyms) == case.get("synonyms", [])
