"""Simple paths from `neighbors` and `facts`, for stores without a query for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import TYPE_CHECKING

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.stores.base import Edge, Path

if TYPE_CHECKING:
    from llama_index_graph_rag.stores.base import EntityRef, Fact, GraphReader

NEIGHBORS_PER_ENTITY = 100
"""Best linked neighbours of an entity that are followed."""

FACTS_PER_STEP = 5
"""Parallel edges of one step that make paths of their own."""


@dataclass(frozen=True, slots=True)
class _Walk:
    """Entity ids in order, and how many relations join each to the next."""

    ids: tuple[str, ...]
    counts: tuple[int, ...] = ()

    @property
    def steps(self) -> tuple[tuple[str, str], ...]:
        return tuple(zip(self.ids, self.ids[1:]))


class _Edges:
    """Facts by pair, fetched once each."""

    def __init__(self, reader: GraphReader, labels: Sequence[str] | None) -> None:
        self.reader = reader
        self.labels = None if labels is None else frozenset(labels)
        self.refs: dict[str, EntityRef] = {}
        self._facts: dict[frozenset[str], list[Fact]] = {}

    def fetch(self, walks: Sequence[_Walk]) -> None:
        steps = dict.fromkeys(walk.steps[-1] for walk in walks)
        new = {frozenset(step): step for step in steps if frozenset(step) not in self._facts}
        self._facts.update((pair, []) for pair in new)
        # A label that is wanted may stand behind others: ask for more of each pair then.
        per_pair = FACTS_PER_STEP if self.labels is None else 100
        for fact in self.reader.facts(list(new.values()), per_pair=per_pair) if new else ():
            self.refs[fact.subject.id], self.refs[fact.object.id] = fact.subject, fact.object
            if self.labels is None or fact.predicate in self.labels:
                self._facts[frozenset((fact.subject.id, fact.object.id))].append(fact)

    def has(self, walk: _Walk) -> bool:
        return bool(self._facts[frozenset(walk.steps[-1])])

    def paths(self, walk: _Walk) -> Iterator[Path]:
        entities = tuple(self.refs[id] for id in walk.ids)
        choices = [
            [
                Edge(fact.predicate, fact.subject.id == before, fact.properties)
                for fact in self._facts[frozenset((before, after))][:FACTS_PER_STEP]
            ]
            for before, after in walk.steps
        ]
        return (Path(entities, edges) for edges in product(*choices))


def simple_paths(
    reader: GraphReader,
    entity_ids: Sequence[str],
    *,
    max_depth: int = 2,
    limit: int = 30,
    labels: Sequence[str] | None = None,
) -> list[Path]:
    """Return simple paths that start at the entities, by breadth-first search.

    Shorter paths come first; of one length those whose weakest step is joined by most relations,
    then by most relations in all, then by names. Parallel edges make paths of their own. At each
    entity the `NEIGHBORS_PER_ENTITY` best linked neighbours are followed.

    Parameters
    ----------
    reader
        The store.
    entity_ids
        Where paths start; unknown ids start none.
    max_depth
        Most edges of a path.
    limit
        Most paths.
    labels
        Predicates that edges may have; None allows all.

    Raises
    ------
    GraphRAGValueError
        If `max_depth` or `limit` is less than 1.
    """
    for name, value in (("max_depth", max_depth), ("limit", limit)):
        if value < 1:
            raise GraphRAGValueError(f"{name} is {value}, the least is 1; raise it")
    paths: list[Path] = []
    edges = _Edges(reader, labels)
    walks = [_Walk((id,)) for id in dict.fromkeys(entity_ids)]
    for _ in range(max_depth):
        walks = _longer(reader, walks)
        if labels is None:
            # Each gives a path at least, so the others cannot come to be seen.
            walks = walks[: limit - len(paths)]
        edges.fetch(walks)
        walks = [walk for walk in walks if edges.has(walk)]
        for walk in walks:
            paths.extend(islice(edges.paths(walk), limit - len(paths)))
        if len(paths) >= limit or not walks:
            break
    return paths


def _longer(reader: GraphReader, walks: Sequence[_Walk]) -> list[_Walk]:
    """Return all walks that are one step longer and visit no entity twice, best linked first."""
    ends = list(dict.fromkeys(walk.ids[-1] for walk in walks))
    around = reader.neighbors(ends, limit_per_entity=NEIGHBORS_PER_ENTITY) if ends else {}
    names: dict[str, str] = {}
    longer = []
    for walk in walks:
        for neighbor in around.get(walk.ids[-1], ()):
            id = neighbor.entity.id
            if id not in walk.ids:
                names[id] = neighbor.entity.name
                longer.append(_Walk((*walk.ids, id), (*walk.counts, neighbor.count)))
    return sorted(
        longer,
        key=lambda walk: (
            -min(walk.counts),
            -sum(walk.counts),
            [names.get(id, "") for id in walk.ids],
            walk.ids,
        ),
    )
