import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_index_graph_rag.extractors.keyword_answers import parse_keywords
from llama_index_graph_rag.identity import canonical_name

CASES = json.loads(Path(__file__).with_name("keyword_answers.json").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["answer"][:30])
def test_odd_answers_are_understood(case):
    found = parse_keywords(case["answer"])
    assert found.keywords == case["keywords"]
    assert found.synonyms == case.get("synonyms", [])


MARKS = list(":\n,、，`[]{}\"'#(\x00\ud800")
WORDS = [
    "KEYWORDS:",
    "关键词：",
    "SYNONYMS",
    "- ",
    "1. ",
    "**",
    "```json",
    "<think>",
    "Euler",
    "欧拉",
]
PIECES = st.sampled_from(MARKS + WORDS)


@settings(max_examples=400, deadline=None)
@given(st.lists(PIECES | st.text(max_size=5), max_size=25).map("".join))
def test_nothing_raises_and_names_are_clean(answer):
    found = parse_keywords(answer)
    names = [canonical_name(name) for name in found.keywords + found.synonyms]
    assert all(names)
    assert len(set(names)) == len(names)


def test_long_answers_take_no_long_time():
    started = time.process_time()
    for text in ("a, " * 1_500, "[" * 1_500, "keywords " * 1_500, "**" * 1_500, "1. " * 1_500):
        parse_keywords(text)
    # 0.04 s when measured; what is quadratic takes minutes.
    assert time.process_time() - started < 5
