"""What a KnowledgeGraphRetriever gives out: nodes with knowledge sequences, and its trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from llama_index.core.prompts import BasePromptTemplate, PromptTemplate
from llama_index.core.schema import NodeWithScore, TextNode

from llama_index_graph_rag.identity import clean_text, content_hash, relation_id
from llama_index_graph_rag.retrievers.knowledge_sequences import (
    MAX_VALUE_LENGTH,
    Selection,
    Writer,
    by_start,
)
from llama_index_graph_rag.stores.base import EntityRef, Path
from llama_index_graph_rag.trace import (
    GraphNodeWithScore,
    RelationUse,
    RetrievalTrace,
    TracedRelation,
)

KNOWLEDGE_PROMPT = PromptTemplate(
    """\
Below is what a knowledge graph holds around the entities of the question, up to {max_depth} \
steps away. Each line is one path. `A -[r]-> B` states that A stands in relation r to B; \
`A <-[r]- B` states that B stands in relation r to A. Braces hold properties.
{knowledge}"""
)
"""Introduces the knowledge sequences; its variables are ``max_depth`` and ``knowledge``."""


@dataclass(slots=True)
class KnowledgeGraphTrace(RetrievalTrace):
    """The record of one retrieval from a knowledge graph.

    Attributes
    ----------
    keywords, synonyms
        What the extractor made of the question.
    raw
        The LLM's answers, where there were any.
    matches
        Entities of the graph by the name that found them, in the order of the names.
    unmatched
        Names that the graph does not know.
    sequences
        The lines that were given out, best first.

    Examples
    --------
    >>> KnowledgeGraphTrace("Who knows Marko?", keywords=("Marko",)).to_dict()["keywords"]
    ['Marko']
    """

    keywords: tuple[str, ...] = ()
    synonyms: tuple[str, ...] = ()
    raw: tuple[str, ...] = ()
    matches: dict[str, tuple[EntityRef, ...]] = field(default_factory=dict)
    unmatched: tuple[str, ...] = ()
    sequences: tuple[str, ...] = ()


class KnowledgeWriter:
    """Writes a selection of paths as nodes, and into the trace what is given out and what not."""

    def __init__(self, chosen: Selection, trace: KnowledgeGraphTrace, limit: int) -> None:
        self._chosen = chosen
        self._writer = Writer(chosen.paths)
        self._lines = [self._writer.line(path) for path in chosen.paths]
        self._relations = [_relations(path) for path in chosen.paths]
        trace.sequences = tuple(self._lines)
        trace.keep_subgraph(relation for path in self._relations for relation in path)
        for count, what in (
            (chosen.contained, "paths that another one contains"),
            (chosen.cut, f"paths over max_knowledge_sequence={limit}"),
            (self._writer.shortened, f"names and values cut to {MAX_VALUE_LENGTH} characters"),
        ):
            if count:
                trace.dropped.append(f"{count} {what}")

    def node(self, prompt: BasePromptTemplate, max_depth: int, schema: str) -> NodeWithScore:
        """Return one node with all lines, scored like the best of them."""
        text = prompt.format(max_depth=max_depth, knowledge="\n".join(self._lines))
        node = self._node(text, self._chosen.paths, self._lines)
        if schema:
            node.metadata["kg_schema"] = {"schema": clean_text(schema)}
            # For the LLM that answers; in a vector it would be noise.
            node.excluded_embed_metadata_keys.append("kg_schema")
        uses = _uses(relation for path in self._relations for relation in path)
        return GraphNodeWithScore(node=node, score=self._chosen.scores[0], relations=uses)

    def nodes(self) -> list[NodeWithScore]:
        """Return one node a line, each with its score."""
        return [
            GraphNodeWithScore(
                node=self._node(line, [path], [line]), score=score, relations=_uses(relations)
            )
            for path, line, score, relations in zip(
                self._chosen.paths, self._lines, self._chosen.scores, self._relations
            )
        ]

    def _node(self, text: str, paths: Sequence[Path], lines: list[str]) -> TextNode:
        keys = ["kg_rel_map", "kg_rel_text"]
        return TextNode(
            id_=content_hash("knowledge", text),
            text=text,
            metadata={"kg_rel_map": by_start(paths, lines, self._writer), "kg_rel_text": lines},
            excluded_embed_metadata_keys=list(keys),
            excluded_llm_metadata_keys=list(keys),
        )


def _relations(path: Path) -> list[TracedRelation]:
    relations = []
    for (before, after), edge in zip(pairwise(path.entities), path.edges):
        left, right = (before, after) if edge.forward else (after, before)
        id = relation_id(left.name, edge.predicate, right.name)
        subject_id, subject = clean_text(left.id), clean_text(left.name)
        object_id, object = clean_text(right.id), clean_text(right.name)
        predicate = clean_text(edge.predicate)
        relations.append(
            TracedRelation(id, subject_id, subject, predicate, object_id, object, "chosen")
        )
    return relations


def _uses(relations: Iterable[TracedRelation]) -> tuple[RelationUse, ...]:
    # Paths of a graph database have no similarity of their own: 0, as where none is known.
    uses = {relation.id: RelationUse(relation.id, relation.text, 0.0) for relation in relations}
    return tuple(uses.values())
