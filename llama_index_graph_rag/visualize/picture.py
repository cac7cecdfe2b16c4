"""The data of a picture: what is drawn of an explanation, and where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from llama_index_graph_rag.trace import TracedHit, TracedRelation
from llama_index_graph_rag.visualize.layout import layout
from llama_index_graph_rag.visualize.networkx_graph import names_of

LETTER = 6.6
"""Pixels that a letter of a label takes on the average."""
LABEL = 26
"""Letters of a label; the rest shows when one points at it."""
LABELLED = 60
"""Relations up to which every edge is made as long as its label needs."""


class DrawnEntity(TypedDict):
    """An entity: its name, its place in pixels, and its similarity if it is a seed."""

    name: str
    x: float
    y: float
    seed: float | None


class DrawnRelation(TypedDict):
    """A relation between two entities, which are given by their places in the list."""

    id: str
    source: int
    target: int
    predicate: str
    role: str
    degree: int | None
    similarity: float | None


class Picture(TypedDict):
    """What is drawn."""

    entities: list[DrawnEntity]
    relations: list[DrawnRelation]


def picture(relations: Sequence[TracedRelation], seeds: Sequence[TracedHit]) -> Picture:
    """Return entities with their places, and relations between them.

    Examples
    --------
    >>> relation = TracedRelation("r", "e", "Euler", "studied with", "b", "Bernoulli", "chosen")
    >>> drawn = picture([relation], [TracedHit("e", "Euler", 1.0)])
    >>> [(entity["name"], entity["seed"]) for entity in drawn["entities"]]
    [('Euler', 1.0), ('Bernoulli', None)]
    """
    entities = {seed.id: seed.text for seed in seeds}
    for one in relations:
        entities.setdefault(one.subject_id, one.subject)
        entities.setdefault(one.object_id, one.object)
    names = names_of(entities)
    rows = {id: row for row, id in enumerate(names)}
    similar = {seed.id: round(seed.similarity, 4) for seed in seeds}
    edges = [(rows[one.subject_id], rows[one.object_id]) for one in relations]
    few = len(relations) <= LABELLED
    places = layout(
        [LETTER * min(len(name), LABEL) + 12 for name in names.values()],
        edges,
        [_length(one, few) for one in relations],
    )
    return Picture(
        entities=[
            DrawnEntity(name=name, x=round(x, 1), y=round(y, 1), seed=similar.get(id))
            for (id, name), (x, y) in zip(names.items(), places.tolist())
        ],
        relations=[
            DrawnRelation(
                id=one.id,
                source=source,
                target=target,
                predicate=one.predicate,
                role=one.role,
                degree=one.degree,
                similarity=None if one.similarity is None else round(one.similarity, 4),
            )
            for one, (source, target) in zip(relations, edges)
        ],
    )


def _length(relation: TracedRelation, few: bool) -> float:
    if few or relation.role in ("chosen", "used"):
        return min(LETTER * len(relation.predicate), 170.0) + 60.0
    return 80.0
