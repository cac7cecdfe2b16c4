"""What stores take and give: rows to write, hits, entities, facts and paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from llama_index_graph_rag.triplets import Mention

if TYPE_CHECKING:
    from llama_index.core.schema import TextNode

Properties = Mapping[str, object]
"""Properties of a vertex or an edge as its store gives them."""


# --- an index of ours ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EntityRow:
    """An entity to write: its id, first spelling and embedding."""

    id: str
    text: str
    embedding: Sequence[float]


@dataclass(frozen=True, slots=True)
class RelationRow:
    """A relation (a distinct triplet) to write."""

    id: str
    subject_id: str
    object_id: str
    subject: str
    predicate: str
    object: str
    embedding: Sequence[float]

    @property
    def text(self) -> str:
        """The relation as one sentence."""
        return f"{self.subject} {self.predicate} {self.object}"


@dataclass(frozen=True, slots=True)
class PassageRow:
    """A passage to write: a node without embedding or graph metadata, and what it states.

    `mentions` and `relation_ids` run side by side: mention i states relation i.
    """

    node: TextNode
    embedding: Sequence[float]
    relation_ids: tuple[str, ...]
    mentions: tuple[Mention, ...]
    content_hash: str
    document_hash: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows to write together; passages are written last and are the commit record."""

    entities: Sequence[EntityRow] = ()
    relations: Sequence[RelationRow] = ()
    passages: Sequence[PassageRow] = ()


@dataclass(frozen=True, slots=True)
class Hits:
    """What is nearest to one vector, best first, ties by id."""

    ids: tuple[str, ...] = ()
    similarities: tuple[float, ...] = ()
    texts: tuple[str, ...] = ()


class Limits(NamedTuple):
    """How many hits a vector may bring of each kind."""

    entities: int = 10
    relations: int = 50
    passages: int = 100


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Hits per vector, in the order in which the vectors were given."""

    entities: tuple[Hits, ...] = ()
    relations: tuple[Hits, ...] = ()
    passages: tuple[Hits, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredPassage:
    """A passage as it is stored: its node, and which relations it states and how."""

    node: TextNode
    relation_ids: tuple[str, ...]
    mentions: tuple[Mention, ...]


# --- a graph that can be walked -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EntityRef:
    """An entity of a store: `id` is opaque and native (``1:marko`` in HugeGraph)."""

    id: str
    name: str
    label: str = field(default="", compare=False)
    properties: Properties = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Neighbor:
    """An entity next to another, with the number of relations that join them."""

    entity: EntityRef
    count: int


@dataclass(frozen=True, slots=True)
class Link:
    """Two entities that are joined directly, with the number of relations that join them."""

    left_id: str
    right_id: str
    count: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where a fact is stated: the passage, and the sentence if it is known."""

    passage_id: str
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """A triplet of a store, with its direction, its edge properties and who states it.

    `count` is the number of passages that state it (1 where a store does not count).
    `similarity` is the nearness to the question, where it was asked for and is known.
    """

    subject: EntityRef
    predicate: str
    object: EntityRef
    count: int = 1
    evidence: tuple[Evidence, ...] = ()
    properties: Properties = field(default_factory=dict, compare=False)
    similarity: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Edge:
    """One step of a path: `forward` if it runs from the entity before to the entity after."""

    predicate: str
    forward: bool
    properties: Properties = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Path:
    """A walk over n entities and the n - 1 edges between them; no entity twice."""

    entities: tuple[EntityRef, ...]
    edges: tuple[Edge, ...]
