"""The recipe of the Milvus tutorial on Graph RAG as one preset."""

from __future__ import annotations

import pytest
from choosing_llm import choosing_llm, shown
from llama_index.core.schema import TextNode
from word_embedding import word_vector

from llama_index_graph_rag import GraphRAGIndex, GraphRAGValueError

RECIPE = {
    "degree": 1,
    "entity_top_k": 3,
    "search_known_entities": True,
    "relation_top_k": 3,
    "candidates": "expansion",
    "rerank_top_n": 3,
    "similarity_top_k": 2,
}

PASSAGES = {
    "potter": (
        "Anselm Vey was a potter who invented the salt kiln. With his brother Ludo Vey he opened "
        "a workshop in Harlow, and he taught Ludo how to mix glazes.",
        [
            ("Anselm Vey", "invented", "the salt kiln"),
            ("Anselm Vey", "was the brother of", "Ludo Vey"),
            ("Anselm Vey", "opened a workshop in", "Harlow"),
        ],
    ),
    "glazier": (
        "Ludo Vey, the younger of the two, won the guild's medal. He was the master of the painter "
        "Mira Sand, and his own children did not get on with him.",
        [
            ("Ludo Vey", "won", "the guild's medal"),
            ("Ludo Vey", "was the master of", "Mira Sand"),
        ],
    ),
    "son": (
        "Otis Vey, the son of Ludo Vey, built the first kiln that burns gas. His father struck him "
        "out of his will for it.",
        [
            ("Otis Vey", "was the son of", "Ludo Vey"),
            ("Otis Vey", "built", "the first gas kiln"),
        ],
    ),
    "pupil": (
        "Mira Sand learned to draw in Harlow and painted the blue plates that made her known in "
        "every port.",
        [
            ("Mira Sand", "learned to draw in", "Harlow"),
            ("Mira Sand", "painted", "the blue plates"),
        ],
    ),
}
QUESTION = "What did the son of Mira Sand's master build?"
CHOICE = (
    "Ludo Vey was the master of Mira Sand",
    "Otis Vey was the son of Ludo Vey",
    "Otis Vey built the first gas kiln",
)


@pytest.fixture(scope="module")
def small(tmp_path_factory, embed_model):
    index = GraphRAGIndex.from_triplets(
        [TextNode(id_=id, text=text) for id, (text, _) in PASSAGES.items()],
        [triplets for _, triplets in PASSAGES.values()],
        uri=tmp_path_factory.mktemp("recipe") / "small.db",
        embed_model=embed_model,
    )
    yield index
    index.close()


async def test_the_recipe(small) -> None:
    llm = choosing_llm(*CHOICE)
    retriever = small.as_retriever(llm=llm, entity_extractor=lambda _: ["Mira Sand"], **RECIPE)
    for nodes, trace in (
        retriever.retrieve_with_trace(QUESTION),
        await retriever.aretrieve_with_trace(QUESTION),
    ):
        assert [node.node_id for node in nodes] == ["glazier", "son"]
        assert [hit.text for hit in trace.chosen] == list(CHOICE)
        assert len(trace.relations) == 3
        assert set(trace.expansion) == {0, 1}
        assert trace.calls["llm"] == 1
        assert trace.calls["embedding"] == 2
    assert len(llm.calls) == 2


def test_what_is_shown_is_the_expansion_of_the_seeds(small) -> None:
    llm = choosing_llm(*CHOICE)
    retriever = small.as_retriever(llm=llm, entity_extractor=lambda _: ["Mira Sand"], **RECIPE)
    _, trace = retriever.retrieve_with_trace(QUESTION)
    every = [f"{s} {p} {o}" for _, triplets in PASSAGES.values() for s, p, o in triplets]
    ends = {f"{s} {p} {o}": {s, o} for _, triplets in PASSAGES.values() for s, p, o in triplets}
    seeds = {hit.text for hit in trace.relations}
    touched = {name for fact in seeds for name in ends[fact]}
    names = {hit.text for hit in trace.entities}
    # Degree 1: relations that share an entity with a seed relation, and of the entities' relations
    # (degree 0) those that share one with them.
    of_entities = {fact for fact in every if ends[fact] & names}
    reached = touched | {name for fact in of_entities for name in ends[fact]}
    expected = {fact for fact in every if ends[fact] & reached} | seeds
    assert set(shown(llm.calls[0].prompt)) == expected


def test_three_hits_an_entity(small) -> None:
    retriever = small.as_retriever(entity_extractor=lambda _: ["Vey", "Otis Vey"], **RECIPE)
    _, trace = retriever.retrieve_with_trace(QUESTION)
    assert {hit.text for hit in trace.entities} == {"Anselm Vey", "Ludo Vey", "Otis Vey"}
    assert trace.entities[0].text == "Otis Vey"


def test_thresholds_are_strict(small) -> None:
    vector = word_vector(QUESTION)
    facts = [f"{s} {p} {o}" for _, triplets in PASSAGES.values() for s, p, o in triplets]
    likeness = {fact: sum(a * b for a, b in zip(vector, word_vector(fact))) for fact in facts}
    _, trace = small.as_retriever(**RECIPE).retrieve_with_trace(QUESTION)
    best = trace.relations[0]
    assert best.similarity == pytest.approx(likeness[best.text], abs=1e-5)

    def reached(**cutoffs):
        options = RECIPE | {"entity_extractor": lambda _: [], "degree": 0} | cutoffs
        return sum(
            small.as_retriever(**options).retrieve_with_trace(QUESTION)[1].expansion.values()
        )

    above = [hit for hit in trace.relations if hit.similarity > best.similarity - 1e-9]
    assert reached(relation_similarity_cutoff=best.similarity) == 0
    assert reached(relation_similarity_cutoff=best.similarity - 1e-6) == len(above)
    assert reached(relation_similarity_cutoff=None) == 3

    def named(cutoff):
        options = RECIPE | {"entity_extractor": lambda _: ["Mira Sand"]}
        retriever = small.as_retriever(entity_similarity_cutoff=cutoff, **options)
        return [hit.text for hit in retriever.retrieve_with_trace(QUESTION)[1].entities]

    assert named(1.0) == []  # its own name is not more than 1 alike
    assert named(0.999) == ["Mira Sand"]
    assert len(named(None)) >= 1


def test_without_an_llm_and_with_wrong_numbers(small) -> None:
    assert len(small.as_retriever(**RECIPE).retrieve(QUESTION)) == 2
    for name in ("relation_top_k", "similarity_top_k", "rerank_top_n"):
        with pytest.raises(GraphRAGValueError, match=name):
            small.as_retriever(llm=choosing_llm(), **(RECIPE | {name: 0}))
