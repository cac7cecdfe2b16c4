from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_graph_rag.llm_output import (
    MAX_CHARACTERS,
    as_integer,
    as_items,
    as_texts,
    find,
    read_json,
    without_thoughts,
)

WANTED = {"relations": [1, 2]}


@pytest.mark.parametrize(
    "text",
    [
        '{"relations": [1, 2]}',
        '```json\n{"relations": [1, 2]}\n```',
        '```\n{"relations": [1, 2]}',
        'Sure! Here you are:\n{"relations": [1, 2]}\nHope that helps.',
        'I thought of [1] and [see above]: {"relations": [1, 2]}',
        '<think>{"relations": [9]}</think>{"relations": [1, 2]}',
        'hm, {"relations": [9]}</think>\n\n{"relations": [1, 2]}',
        '{"relations": [1, 2,],}',
        "{'relations': [1, 2]}",
        "{relations: [1, 2]}",
        '{"relations": [1, 2] // the way\n}',
        '{/* why */ "relations": [1, 2]}',
        '{"relations": [1, 2]',
        '{"relations": [1, 2',
        '{"relations": [1, 2]}{"relations": [8]}',
        '{"reasoning": "x"}\n{"relations": [1, 2]}',
        '{"relations": [1\uff0c2]}',
        '\ufeff{"relations": [1, 2]}',
    ],
)
def test_reads_the_value_that_is_meant(text: str) -> None:
    read = read_json(text, wanted=["relations"])
    assert read.value == WANTED | (
        {"reasoning": "x"} if isinstance(read.value, dict) and "reasoning" in read.value else {}
    )
    assert read.reason == ""


def test_a_truncated_answer_keeps_what_came() -> None:
    text = '{"reasoning": "a", "relations": [{"label": 1, "text": "A b C"}, {"label": 2, "te'
    value = read_json(text, wanted=["relations"]).value
    assert isinstance(value, dict)
    assert as_items(value, "relations")[0] == {"label": 1, "text": "A b C"}


def test_a_root_list_is_a_value() -> None:
    assert read_json("[1, 2]", wanted=["relations"]).value == [1, 2]
    assert read_json("The facts are [3, 1].").value == [3, 1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "the answer is empty"),
        (" \n", "the answer is empty"),
        ("null", "the answer is null"),
        ("<think>so long that", "within the LLM's thoughts"),
        ("I cannot help.", "no JSON in the answer: 'I cannot help.'"),
        ("{" * 50_000, "no JSON"),
        ("[" * 50_000, "no JSON"),
    ],
)
def test_says_why_there_is_nothing(text: str | None, reason: str) -> None:
    read = read_json(text)
    assert read.value is None
    assert reason in read.reason


@given(st.text(alphabet="{}[]\":,\\/*`<think> \n019ae'-.eE", max_size=80) | st.text(max_size=60))
def test_never_raises(text: str) -> None:
    read = read_json(text, wanted=["relations"])
    assert (read.value is None) == bool(read.reason)
    as_texts(as_items(read.value, "relations"), "text")


def test_only_so_much_is_read() -> None:
    assert read_json("x" * MAX_CHARACTERS + '{"a": 1}').value is None


def test_thoughts() -> None:
    assert without_thoughts("<think>a</think>b<Thinking>\nc</Thinking> d") == "b d"


def test_keys_in_any_spelling() -> None:
    for key in ("relations", "Relation", "RELATIONS ", "rela-tion_s"):
        assert find({key: 1}, "relations") == 1
    assert find({"a": None, "b": 2}, "a", "b") == 2
    assert find({"x": 1}, "a") is None
    assert find({"a": 1, "A": 2}, "a") == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *[(7, 7), ("7", 7), ("[7]", 7), ("Fact 7.", 7), ("\uff17", 7), (7.0, 7), ("-1", -1)],
        *[(True, None), (None, None), ("1-2 3", None), (7.5, None), (float("inf"), None)],
        *[("", None), ([7], None), ("9" * 30, None)],
    ],
)
def test_integers(value: object, expected: int | None) -> None:
    assert as_integer(value) == expected  # type: ignore[arg-type]


def test_items_and_texts() -> None:
    assert as_items({"entities": "Euler"}, "entities") == ["Euler"]
    assert as_items({"name": "Euler"}, "entities") == [{"name": "Euler"}]
    assert as_items(None) == as_items({}, "a") == as_items("") == []
    assert as_texts(["a", {"Name": " b "}, {"x": 1}, True, None, 3], "name") == ["a", "b", "3"]
