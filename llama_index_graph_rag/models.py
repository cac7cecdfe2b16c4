"""The models of the command line: by name, from options and environment variables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from llama_index_graph_rag.errors import GraphRAGValueError

if TYPE_CHECKING:
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.llms import LLM
    from llama_index.core.schema import NodeWithScore

LOCAL = "local"
DEFAULT_LLM = "gpt-4o-mini"
DEFAULT_CONTEXT = 128_000
"""Context window assumed of a model that OpenAI's client does not know."""


def embed_model_named(name: str, *, api_base: str | None = None) -> BaseEmbedding:
    """Return an embedding model: ``local``, or the name of one behind an OpenAI-compatible API.

    Parameters
    ----------
    name
        ``"local"``, or the local model's own name, for the model of the extra ``local``;
        otherwise a model name such as ``"text-embedding-3-small"``.
    api_base
        Base URL; default from ``OPENAI_BASE_URL`` or ``OPENAI_API_BASE``, else OpenAI's.

    Raises
    ------
    MissingExtraError
        If the package behind it is not installed.

    Examples
    --------
    >>> embed_model_named("local").model_name
    'all-MiniLM-L6-v2-int8'
    """
    from llama_index_graph_rag.embeddings import LocalEmbedding

    if name in (LOCAL, "", "all-MiniLM-L6-v2-int8"):
        return LocalEmbedding()
    try:
        from llama_index.embeddings.openai import OpenAIEmbedding
    except ImportError as error:
        from llama_index_graph_rag.errors import MissingExtraError

        raise MissingExtraError("llama-index-embeddings-openai", "openai") from error
    return OpenAIEmbedding(model_name=name, api_base=_base(api_base), api_key=_key(api_base))


def llm_named(name: str | None, *, api_base: str | None = None, max_retries: int = 1) -> LLM:
    """Return an LLM behind an OpenAI-compatible API; any model name will do.

    Its client asks again at most `max_retries` times.

    Raises
    ------
    GraphRAGValueError
        If neither a key nor a base URL is known.

    Examples
    --------
    >>> llm_named("my-model", api_base="http://127.0.0.1:8000/v1").metadata.model_name
    'my-model'
    """
    from llama_index.core.base.llms.types import LLMMetadata
    from llama_index.llms.openai import OpenAI

    class CompatibleOpenAI(OpenAI):
        """OpenAI's client, for model names that it has no table entry of."""

        @property
        def metadata(self) -> LLMMetadata:
            """What is assumed of the model."""
            try:
                return super().metadata
            except ValueError:
                return LLMMetadata(
                    context_window=DEFAULT_CONTEXT,
                    num_output=self.max_tokens or -1,
                    is_chat_model=True,
                    model_name=self.model,
                )

    return CompatibleOpenAI(
        model=name or os.environ.get("OPENAI_MODEL", DEFAULT_LLM),
        api_base=_base(api_base),
        api_key=_key(api_base),
        temperature=0.0,
        max_retries=max_retries,
    )


def answer_from(llm: LLM, question: str, nodes: Sequence[NodeWithScore]) -> tuple[str, str]:
    """Return an LLM's answer from passages, and why there is none if it failed.

    An LLM that is down costs the answer, never the passages.
    """
    from llama_index.core import get_response_synthesizer

    try:
        return str(get_response_synthesizer(llm=llm).synthesize(question, list(nodes))), ""
    except Exception as error:  # whatever the client of an LLM raises
        return "", f"no answer: the LLM failed ({type(error).__name__})"


def _base(given: str | None) -> str | None:
    return given or os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_BASE")


def _key(api_base: str | None) -> str:
    key = os.environ.get("OPENAI_API_KEY", "")
    if not key and not _base(api_base):
        raise GraphRAGValueError(
            "no model can be asked: set OPENAI_API_KEY, or give --api-base (or OPENAI_BASE_URL) "
            "for an OpenAI-compatible server"
        )
    return key or "none"
