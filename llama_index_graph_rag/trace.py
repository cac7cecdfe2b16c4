"""Why a result is there: what a retrieval found, chose, dropped and cost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.schema import NodeWithScore
from pydantic import ConfigDict, SerializeAsAny, TypeAdapter


class TracedHit(NamedTuple):
    """Something that a search or a match brought: its id, text and similarity."""

    id: str
    text: str
    similarity: float


MAX_TRACED_RELATIONS = 300
"""Relations that a trace keeps for a drawing: no one can read more."""

Role = Literal["chosen", "used", "recalled", "expanded"]


class TracedRelation(NamedTuple):
    """A relation around a question, with what is needed to draw it.

    Attributes
    ----------
    id
        As in `RelationUse`.
    subject_id, subject, object_id, object
        Its entities: their ids and names.
    predicate
        Empty where nothing that was fetched spells it.
    role
        The first that applies: ``chosen`` (by an LLM, or because it lies on a path that was
        given out), ``used`` (named with a result), ``recalled`` (near to the question) or
        ``expanded`` (reached from these).
    degree
        Hops from the seeds at which it was reached; None where it was not.
    similarity
        Its nearness to the question, where it is known.
    """

    id: str
    subject_id: str
    subject: str
    predicate: str
    object_id: str
    object: str
    role: Role
    degree: int | None = None
    similarity: float | None = None

    @property
    def text(self) -> str:
        """The relation as one sentence; ``...`` stands for an unknown predicate."""
        return f"{self.subject} {self.predicate or '...'} {self.object}"


@dataclass(slots=True)
class RetrievalTrace:
    """The record of one retrieval; each retriever adds fields of its own in a subclass.

    Attributes
    ----------
    question
        The question, stripped.
    calls
        Calls by kind: ``store.search``, ``store.get``, ``embedding``, ``llm``, ...
    tokens
        Tokens of the LLM by kind (``prompt``, ``completion``), where the LLM reports them.
    milliseconds
        Wall time by stage.
    fallbacks
        What stood in for a part that failed, with the reason, in order.
    dropped
        What was skipped, cut or left out, with the reason, in order.
    subgraph
        The relations around the question, the most telling first; for a drawing.
    beyond_subgraph
        How many more were reached.
    """

    question: str
    calls: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    milliseconds: dict[str, float] = field(default_factory=dict)
    fallbacks: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    subgraph: list[TracedRelation] = field(default_factory=list)
    beyond_subgraph: int = 0

    def keep_subgraph(self, relations: Iterable[TracedRelation]) -> None:
        """Take the first MAX_TRACED_RELATIONS of `relations`, each once, as the subgraph."""
        distinct: dict[tuple[str, str, str], TracedRelation] = {}
        for relation in relations:
            key = (relation.subject_id, relation.predicate, relation.object_id)
            distinct.setdefault(key, relation)
        self.subgraph = list(distinct.values())[:MAX_TRACED_RELATIONS]
        self.beyond_subgraph = len(distinct) - len(self.subgraph)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain values, ready for JSON.

        Examples
        --------
        >>> RetrievalTrace("Who?").to_dict()["question"]
        'Who?'
        """
        plain: dict[str, Any] = TypeAdapter(type(self)).dump_python(self, mode="json")
        return plain

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
    """A relation that brought a passage.

    Examples
    --------
    >>> RelationUse("r1", "Euler was a student of Johann Bernoulli", 0.5).text
    'Euler was a student of Johann Bernoulli'
    """

    id: str
    text: str
    score: float


class GraphNodeWithScore(NodeWithScore):
    """A passage with its score and the relations that brought it.

    The relations ride on the wrapper, never in the node's metadata: the node keeps the hash that
    the same passage has in any other retriever, so that fusion recognises it.

    Examples
    --------
    >>> from llama_index.core.schema import TextNode
    >>> use = RelationUse("r1", "Euler was a student of Johann Bernoulli", 0.5)
    >>> found = GraphNodeWithScore(node=TextNode(text="..."), score=1.0, relations=(use,))
    >>> [use.text for use in found.relations]
    ['Euler was a student of Johann Bernoulli']
    """

    relations: tuple[RelationUse, ...] = ()


class RetrievalTraceEvent(BaseEvent):
    """Instrumentation event that carries the trace of one retrieval.

    Its `span_id` is None: OpenInference warns of every event of a span that it does not know. A
    handler finds the span in ``llama_index_instrumentation.span.active_span_id``.

    Examples
    --------
    >>> RetrievalTraceEvent(trace=RetrievalTrace("Who taught Euler?")).trace.question
    'Who taught Euler?'
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    trace: SerializeAsAny[RetrievalTrace]
    span_id: str | None = None

    @classmethod
    def class_name(cls) -> str:
        """Name of the event's class."""
        return "RetrievalTraceEvent"
