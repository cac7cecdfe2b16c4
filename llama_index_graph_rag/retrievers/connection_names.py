"""The names of a question, and the entities of the graph that they can mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_index_graph_rag.errors import GraphRAGError
from llama_index_graph_rag.extractors.query import EntityExtractor, QueryEntity
from llama_index_graph_rag.graph.snapshot import GraphSnapshot
from llama_index_graph_rag.retrievers.connection_trace import ConnectionTrace, Side
from llama_index_graph_rag.steps import Process, Step, perform
from llama_index_graph_rag.stores.base import GraphReader


@dataclass(frozen=True, slots=True)
class NameFinder:
    """Finds the sides of a search; a name may mean up to `max_matches` entities."""

    reader: GraphReader
    extractor: EntityExtractor
    max_matches: int

    def sides(
        self, names: Sequence[str] | None, graph: GraphSnapshot | None, trace: ConnectionTrace
    ) -> Process[list[Side]]:
        """Return a side for each name that the graph knows: of `names`, or of the question."""
        found = (
            (yield from self._extract(graph, trace))
            if names is None
            else [QueryEntity(name.strip()) for name in names if name.strip()]
        )
        sides = yield from self._sides(found, graph, trace)
        if not sides:
            trace.fallbacks.append(
                "no entity: "
                + ("none of the names is in the graph" if found else "the question names none")
            )
        return sides

    def _extract(
        self, graph: GraphSnapshot | None, trace: ConnectionTrace
    ) -> Process[list[QueryEntity]]:
        known = GraphSnapshot.empty() if graph is None else graph
        extractor = self.extractor
        with trace.timed("entities"):
            try:
                found = yield from perform(
                    Step(
                        run=lambda: extractor.extract(trace.question, known),
                        arun=lambda: extractor.aextract(trace.question, known),
                    )
                )
            except GraphRAGError:
                raise
            # Whatever a user's extractor calls may be down; a passage retriever may still answer.
            except Exception as error:
                trace.fallbacks.append(f"query entities: the extractor failed: {error!r:.200}")
                return []
        if found.llm_calls:
            trace.calls["llm"] += found.llm_calls
            trace.tokens["prompt"] += found.prompt_tokens
            trace.tokens["completion"] += found.completion_tokens
        if found.reason:
            trace.fallbacks.append(f"query entities: {found.reason}")
        return list(found)

    def _sides(
        self, found: Sequence[QueryEntity], graph: GraphSnapshot | None, trace: ConnectionTrace
    ) -> Process[list[Side]]:
        wanted: dict[str, tuple[str, ...]] = {}
        for entity in found:
            ids = entity.entity_ids[: self.max_matches] or (entity.name,)
            wanted.setdefault(entity.name, ids)
        keys = list(dict.fromkeys(key for keys in wanted.values() for key in keys))
        if not keys:
            return []
        limit = self.max_matches
        trace.calls["reader.match"] += 1
        with trace.timed("entities"):
            matches = yield from perform(
                Step(
                    run=lambda: self.reader.match_entities(keys, limit=limit),
                    arun=lambda: self.reader.amatch_entities(keys, limit=limit),
                )
            )
        by_key = dict(zip(keys, matches))
        sides = []
        for name, own in wanted.items():
            refs = {ref.id: ref for key in own for ref in by_key[key] if _is_in(graph, ref.id)}
            if refs:
                sides.append(Side(name, tuple(refs.values())[:limit]))
            else:
                trace.dropped.append(
                    f"{shown_name(name)!r}: no entity of the graph has this name or id"
                )
        return _apart(sides, trace)


def shown_name(name: str) -> str:
    """Return a name for a message, at most 100 characters of it.

    Examples
    --------
    >>> shown_name("Euler"), len(shown_name("x" * 10_000))
    ('Euler', 103)
    """
    return name if len(name) <= 100 else f"{name[:100]}..."


def _is_in(graph: GraphSnapshot | None, id_: str) -> bool:
    # What was written after the snapshot is found, but cannot be walked in it.
    return graph is None or bool(graph.entity_rows([id_])[0] >= 0)


def _apart(sides: Sequence[Side], trace: ConnectionTrace) -> list[Side]:
    """Give each entity to one side: to the name that can mean the fewest."""
    taken: dict[str, str] = {}
    kept: dict[int, Side] = {}
    for place in sorted(range(len(sides)), key=lambda place: len(sides[place].entities)):
        name, entities = sides[place]
        own = tuple(ref for ref in entities if ref.id not in taken)
        if own:
            kept[place] = Side(name, own)
            taken.update((ref.id, name) for ref in own)
        else:
            other = shown_name(taken[entities[0].id])
            trace.dropped.append(f"{shown_name(name)!r}: the same entity as {other!r}")
    return [kept[place] for place in sorted(kept)]
