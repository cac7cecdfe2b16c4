"""An embedding without a model: texts that share words are near. It counts its calls."""

from __future__ import annotations

import math
import re
import threading
import zlib
from collections import Counter

from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import PrivateAttr

DIMENSION = 256
COMMON = {"a", "and", "by", "did", "he", "his", "in", "is", "of", "that", "the", "to", "was", "who"}


def word_vector(text: str, dimension: int = DIMENSION) -> list[float]:
    """Return the normalised counts of the words of `text`, hashed to `dimension` buckets."""
    words = [word for word in re.findall(r"\w+", text.casefold()) if word not in COMMON]
    vector = [0.0] * dimension
    for word in words or [""]:
        vector[zlib.crc32(word.encode()) % dimension] += 1.0
    length = math.sqrt(sum(value * value for value in vector))
    return [value / length for value in vector]


class WordEmbedding(BaseEmbedding):
    """`calls` counts requests (a batch is one), by kind: query and text."""

    dimension: int = DIMENSION
    _calls: Counter[str] = PrivateAttr(default_factory=Counter)
    _lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)

    def __init__(self, dimension: int = DIMENSION) -> None:
        super().__init__(
            model_name=f"words-{dimension}", embed_batch_size=1000, dimension=dimension
        )

    @property
    def calls(self) -> Counter[str]:
        return self._calls

    def _count(self, kind: str) -> None:
        with self._lock:
            self._calls[kind] += 1

    def _get_query_embedding(self, query: str) -> list[float]:
        self._count("query")
        return word_vector(query, self.dimension)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self._count("text")
        return [word_vector(text, self.dimension) for text in texts]

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embedding(text)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._get_text_embeddings(texts)
