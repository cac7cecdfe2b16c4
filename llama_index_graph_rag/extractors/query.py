"""The entities of a question: the interface of what finds them."""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from llama_index_graph_rag.errors import GraphRAGTypeError
from llama_index_graph_rag.identity import canonical_name, clean_text, entity_id

if TYPE_CHECKING:
    from llama_index_graph_rag.graph.snapshot import GraphSnapshot

Names = Sequence[str]
NameFunction = Callable[[str], Names] | Callable[[str], Awaitable[Names]]
"""A function, or a coroutine function, from a question to names."""


class QueryEntity(NamedTuple):
    """An entity that a question names.

    Attributes
    ----------
    name
        As the question has it.
    entity_ids
        The entities of the graph that it can mean; empty if the graph knows none by this name.
    weight
        How sure each of them is, in (0, 1]: 1 for a name found whole.
    """

    name: str
    entity_ids: tuple[str, ...] = ()
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class QueryEntities:
    """The entities of one question.

    Attributes
    ----------
    entities
        In the order of the question, or of the answer that named them.
    reason
        Why there are none, or fewer than there should be; empty if all went well.
    raw
        The LLM's answer, where there was one.
    llm_calls, prompt_tokens, completion_tokens
        What they cost.

    Examples
    --------
    >>> [entity.name for entity in QueryEntities((QueryEntity("Euler"),))]
    ['Euler']
    """

    entities: tuple[QueryEntity, ...] = ()
    reason: str = ""
    raw: str = ""
    llm_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __iter__(self) -> Iterator[QueryEntity]:
        return iter(self.entities)

    def __len__(self) -> int:
        return len(self.entities)


class EntityExtractor(ABC):
    """Finds the entities of a question."""

    @abstractmethod
    def extract(self, question: str, graph: GraphSnapshot) -> QueryEntities:
        """Return the entities that `question` names, known to `graph` or not."""

    async def aextract(self, question: str, graph: GraphSnapshot) -> QueryEntities:
        """Async twin of `extract`; by default `extract` in a thread."""
        return await asyncio.to_thread(self.extract, question, graph)


class NoEntityExtractor(EntityExtractor):
    """Finds nothing: retrieval then starts from relations and passages alone."""

    def extract(self, question: str, graph: GraphSnapshot) -> QueryEntities:
        """Return no entities."""
        return QueryEntities()

    async def aextract(self, question: str, graph: GraphSnapshot) -> QueryEntities:
        """Return no entities."""
        return QueryEntities()


class FunctionEntityExtractor(EntityExtractor):
    """Takes the names that a function, or a coroutine function, finds in the question.

    Parameters
    ----------
    function
        From a question to names. A coroutine function serves async retrieval only.

    Raises
    ------
    GraphRAGTypeError
        On extraction, if the function returns something else than strings, or is a coroutine
        function called by sync retrieval.
    """

    def __init__(self, function: NameFunction) -> None:
        self.function = function

    def extract(self, question: str, graph: GraphSnapshot) -> QueryEntities:
        """Return the names, with the ids of those that the graph knows."""
        found = self.function(question)
        if inspect.isawaitable(found):
            if inspect.iscoroutine(found):
                found.close()
            raise GraphRAGTypeError(
                f"entity_extractor={self.function!r} is a coroutine function and cannot serve sync "
                "retrieval; give a plain function, or use aretrieve"
            )
        return known_entities(_checked(found), graph)

    async def aextract(self, question: str, graph: GraphSnapshot) -> QueryEntities:
        """Return the names; a plain function runs in a thread."""
        if inspect.iscoroutinefunction(self.function):
            found = await self.function(question)
        else:
            found = await asyncio.to_thread(self.function, question)
            if inspect.isawaitable(found):
                found = await found
        return known_entities(_checked(found), graph)


def known_entities(names: Names, graph: GraphSnapshot) -> QueryEntities:
    """Return each name once, with the id of the entity that has it as its canonical name.

    An entity whose relations are all gone counts as unknown.

    Examples
    --------
    >>> from llama_index_graph_rag.graph.snapshot import GraphSnapshot
    >>> list(known_entities(["Euler", "euler "], GraphSnapshot.empty()))
    [QueryEntity(name='Euler', entity_ids=(), weight=1.0)]
    """
    distinct: dict[str, str] = {}
    for name in names:
        if canonical_name(name):
            distinct.setdefault(canonical_name(name), clean_text(name).strip())
    ids = [entity_id(name) for name in distinct]
    rows = graph.entity_rows(ids)
    alive = [row >= 0 and graph.incidence.entity_degree[row] > 0 for row in rows]
    return QueryEntities(
        tuple(
            QueryEntity(name, (id,) if is_known else ())
            for name, id, is_known in zip(distinct.values(), ids, alive)
        )
    )


def as_entity_extractor(value: EntityExtractor | NameFunction | None) -> EntityExtractor:
    """Return `value` as an extractor: one already, a function to names, or None for no entities.

    Raises
    ------
    GraphRAGTypeError
        If it is something else.

    Examples
    --------
    >>> type(as_entity_extractor(None)).__name__
    'NoEntityExtractor'
    """
    if value is None:
        return NoEntityExtractor()
    if isinstance(value, EntityExtractor):
        return value
    if callable(value) and not isinstance(value, type):
        return FunctionEntityExtractor(value)
    raise GraphRAGTypeError(
        f"entity_extractor={value!r} is neither None, an EntityExtractor nor a function from the "
        "question to names; give for example VocabularyEntityExtractor()"
    )


def _checked(names: object) -> Names:
    if (
        isinstance(names, (str, bytes))
        or not isinstance(names, Sequence)
        or not all(isinstance(name, str) for name in names)
    ):
        raise GraphRAGTypeError(
            f"an entity extractor's function returned {repr(names)[:80]}; "
            "it has to return a list of names"
        )
    return names
