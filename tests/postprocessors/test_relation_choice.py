from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_graph_rag.llm_output import read_json
from llama_index_graph_rag.postprocessors.relation_choice import read_choice, reasoning_of

SHOWN = [
    "Euler lived in Basel",
    "Euler was taught by Johann Bernoulli",
    "Johann Bernoulli was the father of Daniel Bernoulli",
    "1738 is the year of Hydrodynamica",
]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        # forms
        ('{"relations": [3, 2]}', [2, 1]),
        ('{"relations": ["3", "[2]"]}', [2, 1]),
        ('{"relations": 3}', [2]),
        ('{"Selected Relations": [{"ID": 3}, {"index": "2"}]}', [2, 1]),
        ("[3, 2]", [2, 1]),
        ('[{"label": 3}]', [2]),
        ('{"label": 3}', [2]),
        ('{"relations": {"3": "Johann Bernoulli was the father of Daniel Bernoulli"}}', [2]),
        ('{"3": "Johann Bernoulli was the father of Daniel Bernoulli", "1": ""}', [2, 0]),
        ('{"relations": [[2, "Euler was taught by Johann Bernoulli"]]}', [1]),
        ('{"relations": [{"2": "Euler was taught by Johann Bernoulli"}]}', [1]),
        ('{"relations": ["[2] Euler was taught by Johann Bernoulli"]}', [1]),
        ('{"relations": ["2. Euler was taught by Johann Bernoulli", "1:"]}', [1, 0]),
        ('{"relations": ["Euler was taught by Johann Bernoulli"]}', [1]),
        ('{"relations": ["1738 is the year of Hydrodynamica"]}', [3]),
        ('{"relations": [{"label": "[1]", "text": "[1] euler lived in  BASEL."}]}', [0]),
        # label and text disagree: the text decides
        ('{"relations": [{"label": 1, "text": "Euler was taught by Johann Bernoulli"}]}', [1]),
        ('{"relations": [{"label": 9, "text": "Euler was taught by Johann Bernoulli"}]}', [1]),
        ('{"relations": [{"label": 1, "text": "Euler was taught by Joh. Bernoulli"}]}', [1]),
        ('{"relations": [{"label": 1, "text": "Gauss lived in Brunswick"}]}', []),
        ('{"relations": [{"label": 2, "text": "Euler was tau', [1]),
        ('{"relations": [{"label": 2, "text": ""}]}', [1]),
        # nothing, out of range, invented, twice
        ('{"relations": []}', []),
        ('{"relations": [0, -1, 5, 99, true, null, 1.5]}', []),
        ('{"relations": [2, "2", {"label": 2}]}', [1]),
        ('{"relations": ["none of them"]}', []),
        ('{"reasoning": "Facts 1 and 2"}', []),
    ],
)
def test_reads_what_was_chosen(answer: str, expected: list[int]) -> None:
    value = read_json(answer, wanted=["relations"]).value
    assert read_choice(value, SHOWN)[0] == expected


def test_says_what_was_dropped() -> None:
    value = [2, 7, 2, {"label": 4, "text": "Gauss lived in Brunswick"}, 1, 3]
    chosen, dropped = read_choice(value, SHOWN, limit=2)
    assert chosen == [1, 0]
    assert dropped == [
        "7 is none of the 4 relations shown",
        "2 was chosen twice",
        "4 'Gauss lived in Brunswick' is none of the 4 relations shown",
        "3 is beyond the 2 relations asked for",
    ]


def test_equal_texts_are_told_apart_by_their_labels() -> None:
    shown = ["New York Times square", "New York Times square"]
    assert read_choice([{"label": 2, "text": shown[0]}], shown)[0] == [1]
    assert read_choice([{"label": 1, "text": shown[0]}, {"label": 2, "text": shown[0]}], shown)[
        0
    ] == [0, 1]


def test_of_two_equally_near_the_labelled_one_is_taken() -> None:
    shown = ["Euler was born in 1701", "Euler was born in 1702"]
    for label in (1, 2):
        item = {"label": label, "text": "Euler was born in 1703"}
        assert read_choice([item], shown)[0] == [label - 1]


def test_reasoning() -> None:
    assert reasoning_of({"Thought Process": "a"}) == "a"
    assert reasoning_of({"reasoning": ["a", "b"]}) == "a b"
    assert reasoning_of([1]) == reasoning_of({}) == ""


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["relations", "label", "text", "3", "x"]), inner, max_size=3
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_value_gives_places_in_range_once(value: object) -> None:
    chosen, _ = read_choice(value, SHOWN, limit=3)  # type: ignore[arg-type]
    assert len(set(chosen)) == len(chosen) <= 3
    assert all(0 <= place < len(SHOWN) for place in chosen)
    reasoning_of(value)  # type: ignore[arg-type]
