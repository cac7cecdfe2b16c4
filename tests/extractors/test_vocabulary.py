from __future__ import annotations

import gc
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError
from llama_index_graph_rag.extractors.query import (
    EntityExtractor,
    FunctionEntityExtractor,
    QueryEntity,
    as_entity_extractor,
)
from llama_index_graph_rag.extractors.vocabulary import VocabularyEntityExtractor
from llama_index_graph_rag.graph.snapshot import (
    EntityKey,
    GraphSnapshot,
    PassageKey,
    RelationKey,
)
from llama_index_graph_rag.identity import canonical_name, entity_id
from llama_index_graph_rag.triplets import Triplet


def graph_of(
    *names: str, base: GraphSnapshot | None = None, passage: str = "p", hub: str = "zzhub"
) -> GraphSnapshot:
    """Return a graph in which one passage states a relation of each name with a common hub."""
    triplets = [Triplet(name, "is in", hub) for name in names]
    return (base or GraphSnapshot.empty()).with_changes(
        entities=[EntityKey(entity_id(name), name) for name in (*names, hub)],
        relations=[RelationKey(t.id, t.subject_id, t.object_id) for t in triplets],
        passages=[PassageKey(passage, "d", tuple(t.id for t in triplets), "", "")],
    )


def found(question: str, *names: str, **options: float) -> dict[str, list[str]]:
    graph = graph_of(*names)
    result = VocabularyEntityExtractor(**options).extract(question, graph)
    return {
        entity.name: sorted(graph.entity_names.take(graph.entity_rows(entity.entity_ids)))
        for entity in result
    }


BERNOULLIS = (
    "Leonhard Euler",
    "Johann Bernoulli",
    "Daniel Bernoulli",
    "Jakob Bernoulli",
    "Nicolaus Bernoulli",
)


@pytest.mark.parametrize(
    ("question", "names", "expected"),
    [
        ("Where was leonhard   EULER born?", BERNOULLIS, ["Leonhard Euler"]),
        ("Was Euler\u2019s teacher from Basel?", ("Euler", "Basel"), ["Basel", "Euler"]),
        ("What of the Bernoullis\u2019 town?", ("Bernoulli",), []),
        (
            "In the New York Times Square?",
            ("New York", "New York Times", "Times Square"),
            ["New York Times"],
        ),
        ("What contribution did the son make?", ("it", "i", "a", "what", "con"), []),
        ("Which song is by The Who?", ("The Who", "Who", "by"), ["The Who"]),
        ("who is it", ("who", "it"), []),
        ("What is C?", ("C", "C++", "C#"), ["C"]),
        ("Is C++ older than C#?", ("C", "C++", "C#"), ["C#", "C++"]),
        ("What is C++?", ("C",), []),
        ("Who made .NET popular?", (".NET", "net"), [".NET"]),
        ("Is pi 3.14 or not?", ("3", "14", "3.14"), ["3.14"]),
        ("The art in Bart's cart", ("art", "bar", "car"), ["art"]),
        ("Which \u201cSt. Petersburg\u201d?", ("St. Petersburg",), ["St. Petersburg"]),
        ("Did D'Alembert write?", ("Alembert",), ["Alembert"]),
        ("stra\u00dfe und STRASSE", ("Stra\u00dfe",), ["Stra\u00dfe"]),
        ("\uff25\uff55\uff4c\uff45\uff52 taught?", ("Euler",), ["Euler"]),
        ("Who is \ufb01rst Ko\u0308nig?", ("K\u00f6nig",), ["K\u00f6nig"]),
        ("who is e\u0301mile", ("e",), []),
        ("the \U0001f600 face", ("\U0001f600",), ["\U0001f600"]),
        (
            "\u6b27\u62c9\u7684\u8001\u5e08\u7684\u513f\u5b50\u6709\u4ec0\u4e48\u8d21\u732e\uff1f",
            ("\u6b27\u62c9", "\u8001\u5e08", "\u5b50"),
            ["\u6b27\u62c9", "\u8001\u5e08"],
        ),
        (
            "\u7ea6\u7ff0\u00b7\u4f2f\u52aa\u5229\u6559\u8fc7\u8c01",
            ("\u7ea6\u7ff0\u00b7\u4f2f\u52aa\u5229", "\u4f2f\u52aa\u5229"),
            ["\u7ea6\u7ff0\u00b7\u4f2f\u52aa\u5229"],
        ),
        (
            "\uc624\uc77c\ub7ec\uc758 \uc2a4\uc2b9",
            ("\uc624\uc77c\ub7ec", "\ub7ec\uc758"),
            ["\uc624\uc77c\ub7ec"],
        ),
        (
            "\u30d9\u30eb\u30cc\u30fc\u30a4\u306e\u606f\u5b50",
            ("\u30d9\u30eb\u30cc\u30fc\u30a4", "\u30eb\u30cc"),
            ["\u30d9\u30eb\u30cc\u30fc\u30a4"],
        ),
        (
            "\u0e44\u0e17\u0e22\u0e40\u0e1b\u0e47\u0e19\u0e1b\u0e23\u0e30\u0e40\u0e17\u0e28",
            ("\u0e44\u0e17\u0e22", "\u0e40\u0e1b"),
            ["\u0e44\u0e17\u0e22"],
        ),
        (
            "\u0926\u093f\u0932\u094d\u0932\u0940 \u0915\u0939\u093e\u0901",
            ("\u0926\u093f\u0932\u094d\u0932\u0940", "\u0926"),
            ["\u0926\u093f\u0932\u094d\u0932\u0940"],
        ),
        (
            "\u043a\u0442\u043e \u0443\u0447\u0438\u043b \u042d\u0439\u043b\u0435\u0440\u0430?",
            ("\u042d\u0439\u043b\u0435\u0440",),
            [],
        ),
    ],
)
def test_finds_whole_names(question: str, names: tuple[str, ...], expected: list[str]) -> None:
    result = found(question, *names, max_meanings=0)
    assert sorted(name for names in result.values() for name in names) == expected


def test_a_part_counts_where_it_singles_out_few() -> None:
    result = found("What did the son of Euler's teacher Bernoulli do?", *BERNOULLIS)
    assert result == {"euler": ["Leonhard Euler"]}
    assert found("Was Euler a Bernoulli?", *BERNOULLIS, max_meanings=4) == {
        "euler": ["Leonhard Euler"],
        "bernoulli": sorted(BERNOULLIS[1:]),
    }


def test_neighbouring_words_of_one_name_are_taken_together() -> None:
    names = ("Daniel Bernoulli (1700-1782)", *(f"Bernoulli {i}" for i in "vwxyz"), "Daniel K")
    assert found("Who taught Daniel Bernoulli?", *names) == {
        "daniel bernoulli": ["Daniel Bernoulli (1700-1782)"]
    }


def test_a_run_over_function_words_has_to_stand_in_the_name() -> None:
    names = ("University of Basel library", *(f"University {i}" for i in "abcd"), "Basel zoo")
    question = "When did the University of Basel open?"
    assert list(found(question, *names)) == ["university of basel"]
    assert "university of basel" not in found(question, "Basel State University", *names[1:])


def test_a_whole_name_hides_its_own_parts_alone() -> None:
    result = found("Was Johann Bernoulli older?", "Johann Bernoulli", "Bernoulli effect", "Johann")
    assert result == {"johann bernoulli": ["Johann Bernoulli"]}


def test_weights_order_whole_partial_and_common() -> None:
    graph = graph_of("Johann Bernoulli", "Leonhard Euler", "teacher")
    graph = graph_of("teacher", base=graph, passage="q")
    result = VocabularyEntityExtractor().extract("Was Johann Bernoulli Euler's teacher?", graph)
    weights = {entity.name: entity.weight for entity in result}
    assert weights["johann bernoulli"] == 1.0
    assert weights["euler"] == 0.5
    assert 0 < weights["teacher"] < 0.25
    lower = VocabularyEntityExtractor().extract("was euler's teacher here", graph)
    assert [entity.name for entity in lower] == ["euler", "teacher"]


def test_an_entity_whose_relations_are_gone_is_not_found() -> None:
    graph = graph_of("Euler", "Leonhard Euler").with_changes(removed_passages=["p"])
    assert not VocabularyEntityExtractor().extract("Who was Euler?", graph).entities


def test_names_that_come_later_are_found_and_the_base_is_kept() -> None:
    extractor = VocabularyEntityExtractor()
    base = graph_of(*(f"Name{i}" for i in range(5000)))
    assert len(extractor.extract("Name7?", base)) == 1
    automaton = extractor._built[id(base.entity_names.offsets)]
    later = graph_of("Clara Oswald", base=base, passage="q", hub="zzother")
    names = [entity.name for entity in extractor.extract("Did Clara meet Name8?", later)]
    assert names == ["clara", "name8"]
    assert extractor._built[id(later.entity_names.offsets)] is automaton


def test_nothing_is_kept_for_a_graph_that_is_gone() -> None:
    extractor = VocabularyEntityExtractor()
    graph = graph_of("Euler")
    extractor.extract("Euler?", graph)
    del graph
    gc.collect()
    assert not extractor._built


@pytest.mark.parametrize("question", ["", "   ", "?!", "\n", "'"])
def test_an_empty_question_names_nothing(question: str) -> None:
    assert found(question, "Euler", "?") in ({}, {"?!": []}, {"?": ["?"]})


def test_an_empty_graph() -> None:
    assert not VocabularyEntityExtractor().extract("Euler?", GraphSnapshot.empty()).entities


@given(st.lists(st.text(min_size=1, max_size=12), max_size=6), st.text(max_size=40))
def test_any_text_gives_known_ids_and_weights_in_range(names: list[str], question: str) -> None:
    names = [name for name in names if canonical_name(name)]
    graph = graph_of(*names)
    for entity in VocabularyEntityExtractor().extract(question + " ".join(names), graph):
        assert 0 < entity.weight <= 1
        assert entity.entity_ids
        assert (graph.entity_rows(entity.entity_ids) >= 0).all()


@given(st.permutations(BERNOULLIS))
def test_the_result_does_not_depend_on_the_order_of_writing(names: list[str]) -> None:
    question = "Did Daniel Bernoulli, Johann or Euler live in Basel?"
    assert found(question, *names) == found(question, *BERNOULLIS)


def test_bad_options_name_value_and_limit() -> None:
    with pytest.raises(GraphRAGValueError, match="max_meanings=-1"):
        VocabularyEntityExtractor(max_meanings=-1)
    with pytest.raises(GraphRAGValueError, match=r"partial_weight=0 .*\(0, 1\]"):
        VocabularyEntityExtractor(partial_weight=0)


def test_a_long_question_stays_fast() -> None:
    rng = random.Random(0)
    words = [f"w{rng.randrange(300)}" for _ in range(3000)]
    names = [" ".join(rng.sample(words, 2)) for _ in range(2000)]
    assert len(VocabularyEntityExtractor().extract(" ".join(words), graph_of(*names))) > 10


async def test_the_async_twin_gives_the_same() -> None:
    graph = graph_of(*BERNOULLIS)
    extractor = VocabularyEntityExtractor()
    question = "Who taught Euler and Daniel Bernoulli?"
    assert await extractor.aextract(question, graph) == extractor.extract(question, graph)


# --- functions and None ---


async def test_none_finds_nothing() -> None:
    extractor = as_entity_extractor(None)
    assert len(extractor.extract("Euler?", graph_of("Euler"))) == 0
    assert len(await extractor.aextract("Euler?", graph_of("Euler"))) == 0


async def test_a_function_gives_names_known_or_not() -> None:
    expected = (QueryEntity("Euler", (entity_id("Euler"),)), QueryEntity("Lagrange"))
    names = ["Euler", "EULER.", " Lagrange", "  "]
    graph = graph_of("euler")
    extractor = as_entity_extractor(lambda question: names)
    assert extractor.extract("?", graph).entities == expected
    assert (await extractor.aextract("?", graph)).entities == expected


async def test_a_coroutine_function_serves_async_retrieval_only() -> None:
    async def names(question: str) -> list[str]:
        return [question]

    extractor = as_entity_extractor(names)
    graph = graph_of("Euler")
    assert (await extractor.aextract("Euler", graph)).entities[0].entity_ids
    with pytest.raises(GraphRAGTypeError, match="aretrieve"):
        extractor.extract("Euler", graph)


@pytest.mark.parametrize("names", ["Euler", None, [1], {"a": 1}])
def test_a_function_that_returns_no_names_is_refused(names: object) -> None:
    with pytest.raises(GraphRAGTypeError, match="list of names"):
        FunctionEntityExtractor(lambda question: names).extract("?", graph_of("Euler"))


def test_something_else_is_refused() -> None:
    with pytest.raises(GraphRAGTypeError, match="entity_extractor='llm'"):
        as_entity_extractor("llm")
    with pytest.raises(GraphRAGTypeError):
        as_entity_extractor(VocabularyEntityExtractor)
    own: EntityExtractor = VocabularyEntityExtractor()
    assert as_entity_extractor(own) is own


@pytest.mark.parametrize(
    ("phrase", "first"),
    [
        ("Euler ", "euler"),
        ("Johann Euler Bernoulli ", "johann"),
        ("Johann Bernoulli ", "johann bernoulli"),
        ("Johann of the ", "johann"),
    ],
)
def test_a_question_that_repeats_itself_takes_time_in_its_length_only(phrase, first) -> None:
    question = phrase * 10_000  # minutes, if it went with the square of the length
    assert next(iter(found(question, "Euler", "Johann Bernoulli"))) == first


# --- the fast path of canonical_name ---


@given(st.text(alphabet=st.characters(max_codepoint=0x17F), max_size=12))
def test_the_fast_path_of_canonical_names_changes_nothing(text: str) -> None:
    assert canonical_name(text) == canonical_name(f" {text} ") == canonical_name(f"\u201c{text}")
