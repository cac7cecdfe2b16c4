"""Reading triplets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError
from llama_index_graph_rag.identity import canonical_name
from llama_index_graph_rag.triplets import (
    MAX_PART_BYTES,
    Mention,
    Triplet,
    as_triplet,
    unique_triplets,
)

PARTS = st.sampled_from(["A", "a", " A ", "“A”", "B", "C#", "", " ", ".", "欧拉", "\ud800", "A\nB"])


@given(st.lists(st.tuples(PARTS, PARTS, PARTS), max_size=12))
def test_each_triplet_is_kept_once_or_named(values):
    valid, invalid = unique_triplets(values)
    whole = [value for value in values if all(canonical_name(part) for part in value)]
    assert [triplet.id for triplet in valid] == list(
        dict.fromkeys(Triplet(*value).id for value in whole)
    )
    assert len(invalid) == len(values) - len(whole)
    for item in invalid:
        field = item.reason.split()[1]
        assert canonical_name(getattr(Triplet(*item.triplet), field)) == ""
    for triplet in valid:
        triplet.text.encode()
        assert all(part == part.strip() for part in triplet)


def test_the_first_spelling_is_kept():
    valid, _ = unique_triplets([("Euler", "taught", "X"), ("EULER", "Taught", "x.")])
    assert valid == [("Euler", "taught", "X")]


@pytest.mark.parametrize(
    "value",
    [
        "abc",
        b"abc",
        None,
        3,
        ("a", "b"),
        ("a", "b", "c", "d"),
        {"a": 1},
        ("a", 1, "c"),
        ("a", None, "c"),
    ],
)
def test_what_is_no_triplet_is_named(value):
    with pytest.raises(GraphRAGTypeError, match="string"):
        as_triplet(value)


@pytest.mark.parametrize("text", ["x" * 70_000, "欧" * (MAX_PART_BYTES // 3 + 1)])
@pytest.mark.parametrize("place", range(3))
def test_a_part_that_is_too_long_is_named_shortly(text, place):
    parts = ["a", "b", "c"]
    parts[place] = text
    with pytest.raises(GraphRAGValueError, match="over the limit of 8,192") as raised:
        as_triplet(parts)
    assert len(str(raised.value)) < 300


def test_the_longest_part_is_allowed():
    assert as_triplet(("x" * MAX_PART_BYTES, "b", "c")).subject == "x" * MAX_PART_BYTES


def test_a_list_is_a_triplet_too():
    triplet = as_triplet([" a ", "b", "c"])
    assert triplet == Triplet("a", "b", "c")
    assert triplet.text == "a b c"
    assert triplet.subject_id != triplet.object_id


def test_the_evidence_of_a_mention():
    text = "Before. Euler taught. After."
    triplet = Triplet("Euler", "taught", "X")
    assert Mention(triplet, 8, 21).evidence(text) == "Euler taught."
    assert Mention(triplet).evidence(text) == text
