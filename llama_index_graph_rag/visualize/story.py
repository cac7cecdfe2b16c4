"""What a trace tells, in words: one function for each kind of trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import singledispatch

from llama_index.core.schema import MetadataMode, NodeWithScore

from llama_index_graph_rag.query_state import GraphRAGTrace
from llama_index_graph_rag.retrievers.connection_trace import ConnectionTrace
from llama_index_graph_rag.retrievers.knowledge_nodes import KnowledgeGraphTrace
from llama_index_graph_rag.stores.base import EntityRef
from llama_index_graph_rag.trace import GraphNodeWithScore, RetrievalTrace, TracedHit
from llama_index_graph_rag.visualize.branch import Branch, branch, first

SHOWN = 5
"""Hits of each kind that are listed."""
LINE = 160
"""Letters of a hit."""
TITLE = 80
"""Letters of a text that stand for a title."""
ORIGINS = {
    "chosen": "by a chosen relation",
    "ranking": "by the graph's ranking",
    "dense": "by its nearness to the question",
}


def story(trace: RetrievalTrace, nodes: Sequence[NodeWithScore]) -> Branch:
    """Return what happened, from the question to what was returned and what it cost."""
    parts = [*steps(trace), returned(trace, nodes)]
    parts += [branch(f"Left out ({len(trace.dropped)})", trace.dropped)] if trace.dropped else []
    parts += [branch("Fallbacks", trace.fallbacks)] if trace.fallbacks else []
    return branch(trace.question or "(no question)", [*parts, cost(trace)])


@singledispatch
def steps(trace: RetrievalTrace) -> list[Branch]:
    """Return what led to the result; a kind of trace of one's own can be registered."""
    return []


@steps.register
def _of_graph_rag(trace: GraphRAGTrace) -> list[Branch]:
    recalled = [
        branch(f"{kind} ({len(hits)})", first([_hit(hit) for hit in hits], SHOWN))
        for kind, hits in (
            ("entities of the question", trace.entities),
            ("relations near to it", trace.relations),
            ("passages near to it", trace.passages),
        )
        if hits
    ]
    parts = [branch("Recalled", recalled)] if recalled else []
    if trace.expansion:
        parts.append(
            branch(
                f"Grown to {sum(trace.expansion.values()):,} relations",
                [
                    f"{count:,} at degree {degree}" + (", where it starts" if not degree else "")
                    for degree, count in trace.expansion.items()
                ],
            )
        )
    asked = trace.chosen or trace.llm_answer
    if trace.candidates and not asked:
        shown = first([hit.text for hit in trace.candidates], SHOWN)
        parts.append(branch(f"Candidates ({len(trace.candidates)})", shown))
    elif trace.candidates:
        lines = [Branch(hit.text) for hit in trace.chosen] or [Branch("none")]
        if trace.reasoning:
            lines.append(branch("because", [trace.reasoning]))
        parts.append(
            branch(f"Chosen by the LLM, {len(trace.chosen)} of {len(trace.candidates)}", lines)
        )
    return parts


@steps.register
def _of_connections(trace: ConnectionTrace) -> list[Branch]:
    called = {
        side.name: side.entities[0].name if len(side.entities) == 1 else side.name
        for side in trace.sides
    }
    names = [
        called[side.name] + (f": {_entities(side.entities)}" if len(side.entities) > 1 else "")
        for side in trace.sides
    ]
    parts = [branch(f"Names found ({len(names)})", names)] if names else []
    if trace.stages:
        parts.append(
            branch(
                f"Grown to {trace.nodes:,} entities",
                [
                    f"round {stage.round}: {called[trace.sides[stage.side].name]}, "
                    f"{stage.expanded:,} expanded, {stage.new:,} new"
                    for stage in trace.stages
                ],
            )
        )
    found = [
        f"{called[one.left]} and {called[one.right]}: {one.length} steps apart, {one.n_kept:,} of "
        f"{one.n_paths:,.0f} shortest paths kept"
        for one in trace.connections
    ]
    found += [
        f"{called[gap.left]} and {called[gap.right]}: "
        + ("there is no path" if gap.exhausted else f"none of up to {2 * gap.rounds + 1} steps")
        + f" ({gap.left_seen:,} and {gap.right_seen:,} entities seen)"
        for gap in trace.gaps
    ]
    if found:
        parts.append(branch("Connections", found))
    return parts + ([branch(f"Paths ({len(trace.paths)})", trace.paths)] if trace.paths else [])


@steps.register
def _of_knowledge_graph(trace: KnowledgeGraphTrace) -> list[Branch]:
    asked = [
        f"{kind}: {', '.join(words)}"
        for kind, words in (("keywords", trace.keywords), ("synonyms", trace.synonyms))
        if words
    ]
    parts = [branch("Looked for", asked)] if asked else []
    found = [f"{name}: {_entities(refs)}" for name, refs in trace.matches.items()]
    if trace.unmatched:
        found.append(f"not in the graph: {', '.join(trace.unmatched)}")
    if found:
        parts.append(branch(f"Found in the graph ({len(trace.matches)})", found))
    if trace.sequences:
        lines = first(trace.sequences, 2 * SHOWN)
        parts.append(branch(f"Knowledge sequences ({len(trace.sequences)})", lines))
    return parts


def returned(trace: RetrievalTrace, nodes: Sequence[NodeWithScore]) -> Branch:
    """Return what came of it, with the relations that brought each."""
    lines = []
    for place, node in enumerate(nodes, start=1):
        how = brought_by(trace, node)
        score = "" if node.score is None else f" {node.score:.3f}"
        title = title_of(node) or shorten(node.node.get_content(MetadataMode.NONE), TITLE)
        uses = node.relations if isinstance(node, GraphNodeWithScore) else ()
        relations = first([use.text for use in uses], SHOWN)
        lines.append(branch(f"{place}.{score} {title}{f' ({how})' if how else ''}", relations))
    return branch(f"Returned ({len(nodes)})", lines)


def cost(trace: RetrievalTrace) -> Branch:
    """Return calls, tokens and milliseconds."""
    calls = [f"{count} {kind}" for kind, count in trace.calls.items() if count]
    tokens = [f"{count:,} {kind}" for kind, count in trace.tokens.items() if count]
    stages = Counter(trace.milliseconds)
    total = stages.pop("total", sum(stages.values()))
    lines = [f"calls: {', '.join(calls) or 'none'}"]
    if tokens:
        lines.append(f"LLM tokens: {', '.join(tokens)}")
    spent = [f"{stage} {ms:.1f}" for stage, ms in stages.most_common() if ms >= 0.05]
    lines.append(f"{total:.0f} ms" + (f": {', '.join(spent)}" if spent else ""))
    return branch("Cost", lines)


def brought_by(trace: RetrievalTrace, node: NodeWithScore) -> str:
    """Return what brought a passage, "" where that is not known."""
    results = trace.results if isinstance(trace, GraphRAGTrace) else []
    origins = (result.origin for result in results if result.id == node.node.node_id)
    return ORIGINS.get(next(origins, ""), "")


def title_of(node: NodeWithScore) -> str:
    """Return the title that the metadata of a result give, "" if they give none."""
    metadata: Mapping[str, object] = node.node.metadata
    entities, sequences = metadata.get("entity_ids"), metadata.get("kg_rel_text")
    if isinstance(entities, list) and metadata.get("kind") in ("path", "entity"):
        return " - ".join(map(str, node.node.metadata["entities"]))
    if isinstance(sequences, list) and len(sequences) > 1:
        return f"{len(sequences)} knowledge sequences"
    names = [str(metadata[key]) for key in ("title", "file_name") if metadata.get(key)]
    return names[0] if names else ""


def seeds(trace: RetrievalTrace) -> list[TracedHit]:
    """Return the entities from which the graph was grown, with similarities."""
    if isinstance(trace, GraphRAGTrace):
        return trace.entities
    if isinstance(trace, ConnectionTrace):
        refs = [ref for side in trace.sides for ref in side.entities]
    elif isinstance(trace, KnowledgeGraphTrace):
        refs = [ref for found in trace.matches.values() for ref in found]
    else:
        refs = []
    return [TracedHit(ref.id, ref.name, 1.0) for ref in dict.fromkeys(refs)]


def roles(trace: RetrievalTrace) -> dict[str, str]:
    """Return what each role of a relation means in this kind of trace, the strongest first."""
    if isinstance(trace, ConnectionTrace):
        return {"chosen": "on a path", "used": "about an entity"}
    if isinstance(trace, KnowledgeGraphTrace):
        return {"chosen": "in a knowledge sequence"}
    return {
        "chosen": "chosen by the LLM",
        "used": "led to a passage",
        "recalled": "near to the question",
        "expanded": "reached by growing",
    }


def _hit(hit: TracedHit) -> str:
    return f"{hit.similarity:.2f} {shorten(hit.text or hit.id, LINE)}"


def _entities(refs: Sequence[EntityRef]) -> str:
    return ", ".join(
        ref.name if ref.name == ref.id or len(ref.id) == 32 else f"{ref.name} ({ref.id})"
        for ref in refs
    )


def shorten(text: str, limit: int) -> str:
    """Return `text` on one line, cut to `limit` letters.

    Examples
    --------
    >>> shorten("Leonhard  Euler", 10)
    'Leonhar...'
    """
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 3]}..."
