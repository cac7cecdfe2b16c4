"""ConnectionRetriever over Elasticsearch: few searches, and the shortest paths there are."""

from __future__ import annotations

import random
import re
from itertools import pairwise, product

import networkx as nx
import pytest
from llama_index.core import MockEmbedding
from llama_index.core.schema import TextNode

from llama_index_graph_rag.retrievers.connection import ConnectionRetriever
from llama_index_graph_rag.triplets import Triplet


def chain(distance):
    """Return triplets that join A and B by layers of six entities, all to all."""
    layers = [["A"], *([f"{d}.{i}" for i in range(6)] for d in range(1, distance)), ["B"]]
    return [
        Triplet(left, "meets", right)
        for one, other in pairwise(layers)
        for left, right in product(one, other)
    ]


def written(store, triplets, **options):
    store.add([TextNode(id_="p", text="The passage.")], [triplets], **options)
    return store


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("distance", range(1, 8))
def test_at_most_ten_searches_at_every_distance(elasticsearch_store, distance, weighed):
    triplets = chain(distance)
    vectors = {triplet.id: [1.0, i + 1.0] for i, triplet in enumerate(triplets)}
    store = written(elasticsearch_store, triplets, relation_embeddings=vectors)
    retriever = ConnectionRetriever(
        store, entity_extractor=None, embed_model=MockEmbedding(2) if weighed else None
    )
    with store.count_calls() as calls:
        nodes, trace = retriever.connect(["A", "B"])
    assert [(one.length, one.n_paths) for one in trace.connections] == [
        (distance, 6 ** max(0, distance - 1))
    ]
    assert nodes
    walked = 1 + 2 * ((distance + 1) // 2 if distance > 1 else 1)
    assert calls["elasticsearch.search"] <= walked + 3
    assert calls["elasticsearch.search"] <= 10


async def test_async_costs_the_same(elasticsearch_store):
    store = written(elasticsearch_store, chain(7))
    retriever = ConnectionRetriever(store, entity_extractor=lambda question: ["a", "b"])
    with store.count_calls() as calls:
        nodes = await retriever.aretrieve("What joins A and B?")
    with store.count_calls() as again:
        assert [one.text for one in retriever.retrieve("What joins A and B?")] == [
            one.text for one in nodes
        ]
    assert calls["elasticsearch.search"] == again["elasticsearch.search"] <= 10


@pytest.mark.parametrize("seed", range(3))
def test_shortest_paths_are_those_of_networkx(elasticsearch_store, seed):
    graph = nx.gnp_random_graph(60, 0.035, seed=seed)
    names = [f"entity {i:02}" for i in graph]
    store = written(
        elasticsearch_store, [Triplet(names[a], f"r{a}.{b}", names[b]) for a, b in graph.edges]
    )
    retriever = ConnectionRetriever(store, entity_extractor=None, mode="paths", max_paths=1_000)
    joined = sorted({node for edge in graph.edges for node in edge})
    drawn = random.Random(seed).sample(joined, 10)
    for a, b in pairwise(drawn):
        _, trace = retriever.connect([names[a], names[b]])
        if not nx.has_path(graph, a, b) or nx.shortest_path_length(graph, a, b) > 7:
            assert trace.connections == []
            continue
        expected = {
            tuple(names[node] for node in path) for path in nx.all_shortest_paths(graph, a, b)
        }
        (found,) = trace.connections
        assert (found.length, found.n_paths) == (
            len(next(iter(expected))) - 1,
            len(expected),
        )
        assert {tuple(re.findall(r"entity \d+", path)) for path in trace.paths} == expected


def test_passages_and_sentences_come_from_the_store(elasticsearch_store):
    store = written(elasticsearch_store, chain(2))
    nodes, _ = ConnectionRetriever(store, entity_extractor=None, mode="passages").connect(
        ["A", "B"]
    )
    assert [one.node_id for one in nodes] == ["p"]
    (document, *_), _ = ConnectionRetriever(store, entity_extractor=None).connect(["A", "B"])
    assert "The passage." in document.text


def test_one_name_unknown(elasticsearch_store):
    store = written(elasticsearch_store, chain(1))
    nodes, trace = ConnectionRetriever(store, entity_extractor=None).connect(["A", "nobody"])
    assert len(nodes) == 1
    assert any("nobody" in line for line in trace.dropped)
