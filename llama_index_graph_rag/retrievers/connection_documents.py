"""Documents that a ConnectionRetriever returns: paths and entities, with their sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

from llama_index_graph_rag.graph.linearize import (
    Arrow,
    Quote,
    Statement,
    entity_document,
    path_document,
)
from llama_index_graph_rag.identity import clean_text, content_hash, relation_id
from llama_index_graph_rag.stores.base import EntityRef, Evidence, Fact
from llama_index_graph_rag.trace import RelationUse, Role, TracedRelation

METADATA_KEYS = ["kind", "entities", "entity_ids", "passage_ids"]


@dataclass(frozen=True, slots=True)
class GraphDocument:
    """A path or an entity written out.

    Attributes
    ----------
    kind
        ``path`` or ``entity``.
    text
        The document.
    entities
        Of a path from end to end, or the one entity.
    facts
        What was written, in order.
    passage_ids
        The passages quoted, each once, in order.
    """

    kind: str
    text: str
    entities: tuple[EntityRef, ...]
    facts: tuple[Fact, ...]
    passage_ids: tuple[str, ...]

    @property
    def node(self) -> TextNode:
        """A fresh node; its id depends on kind and entities alone, its relationships on facts."""
        sources = [RelatedNodeInfo(node_id=id_) for id_ in self.passage_ids]
        ids = [ref.id for ref in self.entities]
        node = TextNode(
            id_=content_hash("connection", self.kind, *ids),
            text=clean_text(self.text),
            metadata={
                "kind": self.kind,
                "entities": [clean_text(ref.name) for ref in self.entities],
                "entity_ids": list(map(clean_text, ids)),
                "passage_ids": list(self.passage_ids),
            },
            excluded_embed_metadata_keys=METADATA_KEYS,
            excluded_llm_metadata_keys=METADATA_KEYS,
        )
        if sources:
            # SOURCE holds one node only; CHILD holds all of them.
            node.relationships[NodeRelationship.SOURCE] = sources[0]
            node.relationships[NodeRelationship.CHILD] = sources
        return node

    @property
    def relations(self) -> tuple[RelationUse, ...]:
        """The facts as relations; the score is the similarity to the question, 0 if not known."""
        return relation_uses(self.facts)

    def traced(self, role: Role) -> list[TracedRelation]:
        """Return the facts as relations to draw."""
        return [
            TracedRelation(
                use.id,
                clean_text(fact.subject.id),
                clean_text(fact.subject.name),
                clean_text(fact.predicate),
                clean_text(fact.object.id),
                clean_text(fact.object.name),
                role,
                similarity=fact.similarity,
            )
            for use, fact in zip(self.relations, self.facts)
        ]


def relation_uses(facts: Sequence[Fact]) -> tuple[RelationUse, ...]:
    """Return facts as what brought a result."""
    return tuple(
        RelationUse(
            relation_id(fact.subject.name, fact.predicate, fact.object.name),
            clean_text(f"{fact.subject.name} {fact.predicate} {fact.object.name}"),
            float(fact.similarity or 0.0),
        )
        for fact in facts
    )


class FactBook:
    """Facts by the pair of entities that they join, and the texts that stand for evidence.

    Parameters
    ----------
    facts
        Those of one pair in the order in which they are to be written.
    texts
        Text of a passage, for evidence without a sentence.
    evidence_per_fact
        Quotes that a fact may have.
    """

    def __init__(
        self, facts: Sequence[Fact], texts: Mapping[str, str], *, evidence_per_fact: int = 1
    ) -> None:
        self._texts = texts
        self._evidence_per_fact = evidence_per_fact
        self._facts: dict[frozenset[str], list[Fact]] = {}
        for fact in facts:
            pair = self._facts.setdefault(frozenset((fact.subject.id, fact.object.id)), [])
            if fact not in pair:
                pair.append(fact)

    def between(self, one: str, other: str) -> list[Fact]:
        """Return the facts that join two entities, in either direction."""
        return self._facts.get(frozenset((one, other)), [])

    def evidence(self, fact: Fact) -> tuple[Evidence, ...]:
        """Return the evidence that is quoted for a fact."""
        return fact.evidence[: self._evidence_per_fact]

    def path(self, entities: Sequence[EntityRef]) -> GraphDocument | None:
        """Return the document of a path, None if the facts of a step are not there (any more)."""
        steps = [self.between(a.id, b.id) for a, b in pairwise(entities)]
        if not all(steps):
            return None
        arrows = [
            Arrow(facts[0].predicate, forward=facts[0].subject.id == before.id)
            for before, facts in zip(entities, steps)
        ]
        facts = [fact for step in steps for fact in step]
        text = path_document([ref.name for ref in entities], arrows, self._statements(facts))
        return self._document("path", text, entities, facts)

    def entity(self, entity: EntityRef, facts: Sequence[Fact]) -> GraphDocument:
        """Return the document of an entity with these facts."""
        text = entity_document(entity.name, self._statements(facts))
        return self._document("entity", text, [entity], facts)

    def passage_ids(self, facts: Sequence[Fact]) -> tuple[str, ...]:
        """Return the passages that are quoted for these facts, each once."""
        quoted = (evidence.passage_id for fact in facts for evidence in self.evidence(fact))
        return tuple(dict.fromkeys(id_ for id_ in quoted if id_))

    def _document(
        self, kind: str, text: str, entities: Sequence[EntityRef], facts: Sequence[Fact]
    ) -> GraphDocument:
        return GraphDocument(kind, text, tuple(entities), tuple(facts), self.passage_ids(facts))

    def _statements(self, facts: Sequence[Fact]) -> list[Statement]:
        return [
            Statement(
                fact.subject.name,
                fact.predicate,
                fact.object.name,
                tuple(
                    Quote(
                        evidence.sentence or self._texts.get(evidence.passage_id, ""),
                        evidence.passage_id,
                    )
                    for evidence in self.evidence(fact)
                ),
            )
            for fact in facts
        ]
