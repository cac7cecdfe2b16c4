"""MetadataFilters decide what is ranked, what an LLM is shown and what is given as evidence."""

from __future__ import annotations

import pytest
from choosing_llm import choosing_llm, shown
from llama_index.core.vector_stores import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

from llama_index_graph_rag import GraphRAGIndex
from llama_index_graph_rag.demo import load_demo

O = FilterOperator  # noqa: E741
EULER = "Johann Bernoulli was the teacher of Leonhard Euler"

SINGLE = [
    ("family", O.EQ, "Bernoulli"),
    ("family", O.NE, "Bernoulli"),
    ("missing", O.NE, "x"),
    ("missing", O.EQ, "x"),
    ("place", O.EQ, 3),
    ("place", O.GT, 20),
    ("place", O.GTE, 20),
    ("place", O.LT, 2),
    ("place", O.LTE, 2),
    ("place", O.IN, [1, 5, 99]),
    ("place", O.NIN, [1, 5, 99]),
    ("title", O.IN, ["Leonhard Euler", "Guillaume de l'Hôpital"]),
    ("title", O.EQ, "Guillaume de l'Hôpital"),
    ("title", O.EQ, 'no"body \\ \n here'),
    ("title", O.NIN, ['"', "'", "\\"]),
    ("title", O.EQ, ""),
    ("title", O.TEXT_MATCH, "Bernoulli"),
    ("title", O.TEXT_MATCH_INSENSITIVE, "bernoulli"),
    ("title", O.TEXT_MATCH, "%"),
    ("tags", O.CONTAINS, "basel"),
    ("tags", O.ANY, ["basel", "nowhere"]),
    ("tags", O.ALL, ["basel", "swiss"]),
    ("odd", O.IS_EMPTY, None),
    ("missing", O.EQ, None),
    ("place", O.EQ, None),
    ("place", O.NE, None),
    ("place", O.EQ, "3"),
    ("place", O.EQ, 3.0),
    ("place", O.GT, 2.5),
    ("place", O.LT, -1),
    ("place", O.IN, []),
    ("title", O.NIN, []),
    ("title", O.IN, ["Leonhard Euler"] * 3),
    ("title", O.EQ, "x" * 5000),
    ("title", O.EQ, '" or id != "'),
    ("tags", O.EQ, ["swiss", "basel"]),
    ("tags", O.CONTAINS, "%"),
    ('we"ird \\ key', O.EQ, "x"),
    ('we"ird \\ key', O.NE, "x"),
    ("id", O.EQ, "leonhard-euler"),
    ("text", O.NE, ""),
]


def allowed(nodes, filters: MetadataFilters) -> set[str]:
    """Return what LlamaIndex's own function lets through."""
    by_id = {node.node_id: node.metadata for node in nodes}
    passes = build_metadata_filter_fn(by_id.__getitem__, filters)
    return {id for id in by_id if passes(id)}


@pytest.fixture(scope="session")
def nodes(index: GraphRAGIndex):
    stored = index.store.get_passages([node.node_id for node in load_demo().nodes])
    return [passage.node for passage in stored]


@pytest.mark.parametrize(("key", "operator", "value"), SINGLE)
async def test_every_operator(index, nodes, question, key, operator, value) -> None:
    filters = MetadataFilters(filters=[MetadataFilter(key=key, operator=operator, value=value)])
    expected = allowed(nodes, filters)
    retriever = index.as_retriever(similarity_top_k=30, filters=filters)
    found = retriever.retrieve(question)
    assert {node.node_id for node in found} == expected
    assert [n.node_id for n in await retriever.aretrieve(question)] == [n.node_id for n in found]


@pytest.mark.parametrize("operator", [O.GT, O.LTE])
def test_a_value_without_an_order_to_the_stored_ones_passes_none(index, question, operator) -> None:
    filters = MetadataFilters(filters=[MetadataFilter(key="place", operator=operator, value="a")])
    assert index.as_retriever(filters=filters).retrieve(question) == []


def one(key, value, operator=O.EQ) -> MetadataFilter:
    return MetadataFilter(key=key, value=value, operator=operator)


BERNOULLI = one("family", "Bernoulli")
EARLY = one("place", 3, O.LT)
BASEL = one("tags", "basel", O.CONTAINS)
NESTED = [
    MetadataFilters(filters=[BERNOULLI, EARLY], condition=FilterCondition.AND),
    MetadataFilters(filters=[BERNOULLI, EARLY], condition=FilterCondition.OR),
    MetadataFilters(filters=[BERNOULLI, BASEL], condition=FilterCondition.OR),
    MetadataFilters(filters=[BERNOULLI], condition=FilterCondition.NOT),
    MetadataFilters(
        filters=[BERNOULLI, MetadataFilters(filters=[EARLY, BASEL], condition=FilterCondition.OR)]
    ),
    MetadataFilters(
        filters=[EARLY, MetadataFilters(filters=[BERNOULLI], condition=FilterCondition.NOT)]
    ),
]


def decides(filters: MetadataFilters | MetadataFilter, metadata) -> bool:
    if isinstance(filters, MetadataFilter):
        single = MetadataFilters(filters=[filters])
        return bool(build_metadata_filter_fn(lambda _: metadata, single)(""))
    each = [decides(part, metadata) for part in filters.filters]
    if filters.condition == FilterCondition.NOT:
        return not any(each)
    return any(each) if filters.condition == FilterCondition.OR else all(each)


@pytest.mark.parametrize("filters", NESTED)
def test_nested(index, nodes, question, filters) -> None:
    found = index.as_retriever(similarity_top_k=30, filters=filters).retrieve(question)
    expected = {node.node_id for node in nodes if decides(filters, node.metadata)}
    assert {node.node_id for node in found} == expected


def test_no_filters_filter_nothing(index, question) -> None:
    empty = index.as_retriever(filters=MetadataFilters(filters=[])).retrieve(question)
    without = index.as_retriever().retrieve(question)
    assert [node.node_id for node in empty] == [node.node_id for node in without]


@pytest.mark.parametrize("candidates", ["coverage", "expansion"])
async def test_what_is_not_permitted_is_neither_shown_nor_evidence(
    index, question, candidates
) -> None:
    demo = load_demo()
    stated: dict[str, set[str]] = {}
    for node, triplets in zip(demo.nodes, demo.triplets):
        for triplet in triplets:
            stated.setdefault(triplet.text, set()).add(node.metadata["title"])
    filters = MetadataFilters(filters=[one("title", "Leonhard Euler", O.NE)])
    options = {"filters": filters, "similarity_top_k": 30, "candidates": candidates}

    for asynchronous in (False, True):
        llm = choosing_llm(EULER, "Daniel Bernoulli wrote Hydrodynamica")
        retriever = index.as_retriever(llm=llm, **options)
        nodes, trace = (
            await retriever.aretrieve_with_trace(question)
            if asynchronous
            else retriever.retrieve_with_trace(question)
        )
        facts = shown(llm.calls[0].prompt)
        assert facts
        assert EULER not in facts
        for fact in facts:
            assert stated[fact] - {"Leonhard Euler"}, fact
        assert nodes[0].node_id == "daniel-bernoulli"
        assert "leonhard-euler" not in {node.node_id for node in nodes}
        for node in nodes:
            for use in node.relations:
                assert stated[use.text] - {"Leonhard Euler"}
        assert trace.calls["filter"] == 1


def test_a_filter_that_permits_nothing(index, question) -> None:
    llm = choosing_llm(EULER)
    filters = MetadataFilters(filters=[one("title", "Nobody")])
    nodes, trace = index.as_retriever(llm=llm, filters=filters).retrieve_with_trace(question)
    assert nodes == []
    assert llm.calls == []
    assert trace.candidates == []


def test_new_passages_are_filtered_too(tmp_path, embed_model) -> None:
    from llama_index.core.schema import TextNode

    index = GraphRAGIndex.from_triplets(
        [TextNode(id_="a", text="Euler lived in Basel.", metadata={"year": 1707})],
        [[("Euler", "lived in", "Basel")]],
        uri=tmp_path / "years.db",
        embed_model=embed_model,
    )
    retriever = index.as_retriever(filters=MetadataFilters(filters=[one("year", 1710, O.GT)]))
    assert retriever.retrieve("Where did Euler live?") == []
    index.insert_triplets(
        [TextNode(id_="b", text="Euler lived in Berlin.", metadata={"year": 1741})],
        [[("Euler", "lived in", "Berlin")]],
    )
    assert [n.node_id for n in retriever.retrieve("Where did Euler live?")] == ["b"]
    index.delete_nodes(["b"])
    assert retriever.retrieve("Where did Euler live?") == []
    index.close()
