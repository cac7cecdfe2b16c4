import numpy as np
import pytest
import rapidfuzz.fuzz

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.extractors.resolver import (
    propose_merges,
    resolve_triplets,
    resolver_from,
)
from llama_index_graph_rag.triplets import Triplet

NAMES = [
    "Leonhard Euler", "Euler, Leonhard", "Leonard Euler", "Basel", "World War I", "World War II",
    "Apollo 11", "Apollo 12", "Basle University", "University of Basel", "", "王小明", "王小明。",
]  # fmt: skip


def pairs(proposals):
    return {(p.alias, p.name) for p in proposals}


def test_near_names_are_proposed_and_different_numbers_are_not():
    assert pairs(propose_merges(NAMES)) == {
        ("Euler, Leonhard", "Leonhard Euler"),
        ("Leonard Euler", "Leonhard Euler"),
        ("University of Basel", "Basle University"),
    }


def test_the_more_used_name_stays():
    found = propose_merges(["Leonard Euler", "Leonhard Euler"], counts={"Leonhard Euler": 9})
    assert pairs(found) == {("Leonard Euler", "Leonhard Euler")}


def test_embeddings_must_agree():
    names = ["Mary Shelley", "Mary Shelly", "Mary Kelley"]
    vectors = np.array([[1, 0, 0], [0.99, 0.1, 0], [0, 0, 1]])
    assert pairs(propose_merges(names, embeddings=vectors)) == {("Mary Shelly", "Mary Shelley")}
    zero = propose_merges(names, embeddings=np.zeros((3, 3)))
    assert zero == []


def test_no_chains():
    names = ["abcdefghij", "abcdefghiX", "abcdefghYX", "abcdefgZYX"]
    found = propose_merges(names, min_string_similarity=0.85)
    assert pairs(found) == {("abcdefghiX", "abcdefghij"), ("abcdefgZYX", "abcdefghYX")}


def test_the_work_is_bounded(monkeypatch):
    made = 0
    ratio = rapidfuzz.fuzz.ratio

    def counted(*args):
        nonlocal made
        made += 1
        return ratio(*args)

    monkeypatch.setattr(rapidfuzz.fuzz, "ratio", counted)
    rng = np.random.default_rng(0)
    for count in (400, 800):
        made = 0
        names = [f"common {''.join(rng.choice(list('abcdefgh'), 8))}" for _ in range(count)]
        propose_merges(names, embeddings=rng.standard_normal((count, 16)))
        assert made < count * 150  # all pairs would be 200 and 400 times count


def test_only_what_is_accepted_is_merged_and_aliases_are_told():
    proposals = propose_merges(NAMES)
    triplets = [Triplet("LEONARD Euler", "lived in", "Basel"), Triplet("王小明。", "知道", "Basel")]
    none = resolver_from(proposals, accept=lambda p: False)
    assert resolve_triplets(triplets, none) == (triplets, {})
    some = resolver_from(proposals, accept=lambda p: "Euler" in p.name)
    assert resolve_triplets(triplets, some) == (
        [Triplet("Leonhard Euler", "lived in", "Basel"), triplets[1]],
        {"LEONARD Euler": "Leonhard Euler"},
    )
    assert resolve_triplets([], some) == ([], {})


def test_errors():
    with pytest.raises(GraphRAGValueError, match="which is no name"):
        resolve_triplets([Triplet("a", "b", "c")], lambda names: {"a": " . "})
    with pytest.raises(GraphRAGValueError, match="do not fit 2 names"):
        propose_merges(["a", "b"], embeddings=[[1.0]])
    with pytest.raises(GraphRAGValueError, match=r"1\.5"):
        propose_merges(["a"], min_string_similarity=1.5)
