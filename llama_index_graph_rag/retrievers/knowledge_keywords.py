"""Where a KnowledgeGraphRetriever has its keywords from."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from llama_index.core.llms import LLM

from llama_index_graph_rag.errors import GraphRAGError, GraphRAGTypeError
from llama_index_graph_rag.extractors.keyword_answers import unique_names
from llama_index_graph_rag.extractors.keywords import (
    KeywordExtractor,
    Keywords,
    LLMKeywordExtractor,
    PhraseKeywordExtractor,
)
from llama_index_graph_rag.steps import Process, call
from llama_index_graph_rag.trace import RetrievalTrace

KeywordFunction = Callable[[str], Sequence[str]] | Callable[[str], Awaitable[Sequence[str]]]
KeywordSource = KeywordExtractor | KeywordFunction
"""An extractor, or a function or coroutine function from a question to keywords."""


class FunctionKeywordExtractor(KeywordExtractor):
    """Takes the keywords that a function, or a coroutine function, finds in the question.

    A coroutine function serves async retrieval only. Phrases are not split.

    Raises
    ------
    GraphRAGTypeError
        On extraction, if the function returns something else than strings, or is a coroutine
        function called by sync retrieval.

    Examples
    --------
    >>> FunctionKeywordExtractor(str.split).extract("Euler Basel").keywords
    ('Euler', 'Basel')
    """

    def __init__(self, function: KeywordFunction) -> None:
        self.function = function

    def extract(self, question: str) -> Keywords:
        """Return the function's keywords, each once."""
        found = self.function(question)
        if inspect.isawaitable(found):
            if inspect.iscoroutine(found):
                found.close()
            raise GraphRAGTypeError(
                "keyword_extractor is a coroutine function, which sync retrieval cannot wait for; "
                "use aretrieve, or give a plain function"
            )
        return _keywords(found)

    async def aextract(self, question: str) -> Keywords:
        """Async twin of `extract`; a plain function runs in a thread."""
        if inspect.iscoroutinefunction(self.function):
            return _keywords(await self.function(question))
        found = await asyncio.to_thread(self.function, question)
        return _keywords(await found if inspect.isawaitable(found) else found)


def keyword_extractor_for(
    source: KeywordSource | None, llm: LLM | None, max_keywords: int, max_synonyms: int
) -> KeywordExtractor:
    """Return `source` as an extractor; None means by `llm`, or without one by phrases alone."""
    if isinstance(source, KeywordExtractor):
        return source
    if source is not None:
        if not callable(source):
            raise GraphRAGTypeError(
                f"keyword_extractor is a KeywordExtractor or a function, "
                f"got {type(source).__name__}"
            )
        return FunctionKeywordExtractor(source)
    if llm is None:
        return PhraseKeywordExtractor(max_keywords=max_keywords)
    return LLMKeywordExtractor(llm=llm, max_keywords=max_keywords, max_synonyms=max_synonyms)


def ask_keywords(extractor: KeywordExtractor, trace: RetrievalTrace) -> Process[Keywords]:
    """Ask for the keywords of the trace's question; an extractor that fails is stood in for."""
    with trace.timed("keywords"):
        try:
            found = yield from call(extractor.extract, extractor.aextract, trace.question)
        except GraphRAGError:
            raise
        # Whatever a user's extractor calls may be down: that costs quality, not the answer.
        except Exception as error:
            trace.fallbacks.append(f"keywords: by phrases alone, the extractor failed: {error!r}")
            return PhraseKeywordExtractor().extract(trace.question)
    usage = found.usage
    if usage.calls:
        trace.calls["llm"] += usage.calls
        trace.tokens["prompt"] += usage.prompt_tokens
        trace.tokens["completion"] += usage.completion_tokens
    if found.reason:
        trace.fallbacks.append(f"keywords: {found.reason}")
    return found


def _keywords(found: object) -> Keywords:
    if isinstance(found, str) or not isinstance(found, Sequence | set | frozenset):
        raise GraphRAGTypeError(f"keyword_extractor must return strings, got {found!r:.100}")
    names = list(found) if isinstance(found, Sequence) else sorted(found, key=str)
    for name in names:
        if not isinstance(name, str):
            raise GraphRAGTypeError(f"keyword_extractor must return strings, got {name!r:.100}")
    kept = unique_names(cast("list[str]", names))
    reason = None if kept else "the keyword function found none"
    return Keywords(tuple(kept), split_phrases="never", reason=reason)
