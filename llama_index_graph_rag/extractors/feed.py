"""Extractions one by one, as steps of a process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from llama_index.core.schema import BaseNode

from llama_index_graph_rag.extractors.base import Extraction, TripletExtractor
from llama_index_graph_rag.steps import Step


class ExtractionFeed:
    """An extractor's results one by one, for a sync or an async caller.

    Parameters
    ----------
    extractor
        What reads.
    nodes
        What it reads.

    Attributes
    ----------
    step
        Brings the next result, None after the last.
    end
        Stops the extractor early.

    Examples
    --------
    >>> from llama_index.core.schema import TextNode
    >>> from llama_index_graph_rag.extractors.triplets import LLMTripletExtractor
    >>> from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM
    >>> extractor = LLMTripletExtractor(ScriptedLLM('[["Euler", "lived in", "Basel"]]'))
    >>> feed = ExtractionFeed(extractor, [TextNode(text="Euler lived in Basel.")])
    >>> len(feed.step.run().triplets), feed.step.run()
    (1, None)
    """

    def __init__(self, extractor: TripletExtractor, nodes: Sequence[BaseNode]) -> None:
        self._extractor, self._nodes = extractor, nodes
        self._sync: Iterator[Extraction] | None = None
        self._async: AsyncIterator[Extraction] | None = None
        self.step: Step[Extraction | None] = Step(self._next, self._anext)
        self.end: Step[None] = Step(self._close, self._aclose)

    def _next(self) -> Extraction | None:
        if self._sync is None:
            self._sync = iter(self._extractor.extract(self._nodes))
        return next(self._sync, None)

    async def _anext(self) -> Extraction | None:
        if self._async is None:
            self._async = aiter(self._extractor.aextract(self._nodes))
        return await anext(self._async, None)

    def _close(self) -> None:
        close = getattr(self._sync, "close", None)
        if close is not None:
            close()

    async def _aclose(self) -> None:
        close = getattr(self._async, "aclose", None)
        if close is not None:
            await close()
