"""Why a result is there: what a retrieval found, chose, dropped and cost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.schema import NodeWithScore
from pydantic import ConfigDict, SerializeAsAny


class TracedHit(NamedTuple):
    """Something that a search or a match brought: its id, text and similarity."""

    id: str
    text: str
    similarity: float


@dataclass(slots=True)
class RetrievalTrace:
    """The record of one retrieval; each retriever adds fields of its own in a subclass.

    Attributes
    ----------
    question
        The question, stripped.
    calls
        Calls by kind: ``milvus.search``, ``milvus.get``, ``embedding``, ``llm``, ...
    tokens
        Tokens of the LLM by kind (``prompt``, ``completion``), where the LLM reports them.
    milliseconds
        Wall time by stage.
    fallbacks
        What stood in for a part that failed, with the reason, in order.
    dropped
        What was skipped, cut or left out, with the reason, in order.
    """

    question: str
    calls: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    milliseconds: dict[str, float] = field(default_factory=dict)
    fallbacks: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the wall time of the block to `milliseconds[stage]`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = (time.perf_counter() - start) * 1000
            self.milliseconds[stage] = self.milliseconds.get(stage, 0.0) + spent


class RelationUse(NamedTuple):
    """A relation that brought a passage."""

    id: str
    text: str
    score: float


class GraphNodeWithScore(NodeWithScore):
    """A passage with its score and the relations that brought it.

    The relations ride on the wrapper, never in the node's metadata: the node keeps the hash that
    the same passage has in any other retriever, so that fusion recognises it.
    """

    relations: tuple[RelationUse, ...] = ()


class RetrievalTraceEvent(BaseEvent):
    """Instrumentation event that carries the trace of one retrieval."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    trace: SerializeAsAny[RetrievalTrace]

    @classmethod
    def class_name(cls) -> str:
        """Name of the event's class."""
        return "RetrievalTraceEvent"
