"""Canonical names and ids."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_graph_rag.identity import (
    canonical_name,
    clean_text,
    content_hash,
    entity_id,
    relation_id,
)

PIECES = [
    *"AbC#*+!.,:;'`-éßİ欧拉カأा🧮’“”「」–−ﬁⅣ①ς \t\n",
    *("e\u0301", "\u00ad", "\u200b", "\u200d", "\ud800", ".NET", "👩\u200d🔬"),
]
NAMES = st.text(max_size=12) | st.lists(st.sampled_from(PIECES), max_size=8).map("".join)


@given(NAMES)
def test_canonical_names_are_their_own(name):
    canonical = canonical_name(name)
    assert canonical_name(canonical) == canonical
    assert canonical == unicodedata.normalize("NFKC", canonical)
    assert canonical == canonical.strip()
    assert "  " not in canonical
    canonical.encode()


@given(NAMES)
def test_composition_case_and_white_space_do_not_matter(name):
    canonical = canonical_name(name)
    assert canonical_name(unicodedata.normalize("NFC", name)) == canonical
    assert canonical_name(unicodedata.normalize("NFD", name)) == canonical
    assert canonical_name(f" \n{name}\t ") == canonical


@given(st.text("abcXYZ019 -'.&/", max_size=10))
def test_the_short_cut_for_plain_names_is_no_other_rule(name):
    # A letter that the short cut does not know sends the whole name the long way.
    assert canonical_name(f"{name} é") == f"{canonical_name(f'{name} e')[:-1]}é"


@given(st.text(st.characters(categories=("L",)), min_size=1, max_size=6))
def test_letters_of_every_script_are_kept(name):
    assert canonical_name(name)
    letters = canonical_name(unicodedata.normalize("NFKC", name).casefold())
    assert [c for c in letters if c.isalpha()]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("leonhard Euler", "Leonhard Euler"),
        ("the Bernoulli theorem", "The Bernoulli theorem"),
        ("Jakob's", "Jakob’s"),
        ("Jakob's", "Jakob＇s"),
        ("“Leonhard Euler”", "Leonhard Euler."),
        ("Bose–Einstein", "Bose-Einstein"),
        ("Ｅｕｌｅｒ", "Euler"),
        ("Straße", "STRASSE"),
        ("「欧拉」。", "欧拉"),
        ("Ba\u00adsel", "Basel"),
        ("Leonhard\u00a0 Euler", "leonhard euler"),
        ("Poincaré", "Poincare\u0301"),
        ("ﬁnite", "finite"),
    ],
)
def test_spellings_of_one_entity(one, other):
    assert canonical_name(one) == canonical_name(other)
    assert entity_id(one) == entity_id(other)


@pytest.mark.parametrize(
    "names",
    [
        ("C", "C++", "C#", "C*", "C!"),
        ("A", "A*", "A+"),
        (".NET", "NET"),
        ("resume", "résumé"),
        ("欧拉", "歐拉"),
        ("🧮", "📐"),
        ("कि", "क"),
        ("New York", "NewYork"),
        ("1.5", "15"),
        ("AC/DC", "ACDC"),
    ],
)
def test_names_that_stay_apart(names):
    assert len({canonical_name(name) for name in names}) == len(names)
    assert len({entity_id(name) for name in names}) == len(names)


@pytest.mark.parametrize("name", ["", " ", "\n", '"', ".", "...", "«»", "。", " , ; : ", "\u200b"])
def test_names_of_nothing_are_empty(name):
    assert canonical_name(name) == ""


@given(
    st.lists(st.text(max_size=4), min_size=3, max_size=3),
    st.lists(st.text(max_size=4), min_size=3, max_size=3),
)
def test_relations_are_told_apart_by_structure(one, other):
    same = [canonical_name(part) for part in one] == [canonical_name(part) for part in other]
    assert (relation_id(*one) == relation_id(*other)) == same


def test_a_boundary_is_part_of_a_relation():
    assert relation_id("New York", "Times", "square") != relation_id("New", "York Times", "square")
    assert relation_id("A", "knows", "B") != relation_id("B", "knows", "A")


def test_ids_are_for_good():
    # They are in every index that was ever written.
    assert entity_id("Leonhard Euler") == "924673dda9eb3038effffb944027c189"
    triplet = ("Euler", "was a student of", "Johann Bernoulli")
    assert relation_id(*triplet) == "8412d48a93cd402632ee44a83e9b60ad"


@given(st.lists(st.text(max_size=4), max_size=3), st.lists(st.text(max_size=4), max_size=3))
def test_contents_are_told_apart(one, other):
    assert (content_hash(*one) == content_hash(*other)) == (
        list(map(clean_text, one)) == list(map(clean_text, other))
    )


@given(st.text(st.characters(categories=("L", "Cs")), max_size=6))
def test_cleaned_text_can_be_encoded_and_is_as_long(text):
    cleaned = clean_text(text)
    cleaned.encode()
    assert len(cleaned) == len(text)
    assert clean_text(cleaned) == cleaned
