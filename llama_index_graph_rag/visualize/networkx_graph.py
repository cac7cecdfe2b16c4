"""Graphs for networkx: of an index, and of what one question touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from llama_index_graph_rag.trace import TracedHit, TracedRelation

if TYPE_CHECKING:
    from networkx import MultiDiGraph

    from llama_index_graph_rag.stores.base import GraphIndexStore

BATCH = 1_000
"""Passages read at a time."""


def names_of(entities: Mapping[str, str]) -> dict[str, str]:
    """Return a name for each entity id: its own, with the id where several share one.

    Examples
    --------
    >>> names_of({"1": "Euler", "2": "Bernoulli", "3": "Bernoulli"})
    {'1': 'Euler', '2': 'Bernoulli (2)', '3': 'Bernoulli (3)'}
    """
    owners: dict[str, int] = {}
    for name in entities.values():
        owners[name] = owners.get(name, 0) + 1
    return {id: name if owners[name] == 1 else f"{name} ({id})" for id, name in entities.items()}


def graph_of_relations(
    relations: Iterable[TracedRelation], seeds: Iterable[TracedHit] = ()
) -> MultiDiGraph[str]:
    """Return relations as edges between names.

    Parameters
    ----------
    relations
        Edges, keyed by relation id, with ``predicate``, ``role``, ``degree`` and ``similarity``.
    seeds
        Entities that get ``seed=True``; they are there even if no relation touches them.
    """
    import networkx as nx

    relations, seeds = list(relations), list(seeds)
    entities = {seed.id: seed.text for seed in seeds}
    for relation in relations:
        entities.setdefault(relation.subject_id, relation.subject)
        entities.setdefault(relation.object_id, relation.object)
    names = names_of(entities)
    starts = {seed.id for seed in seeds}
    graph: MultiDiGraph[str] = nx.MultiDiGraph()
    for id, name in names.items():
        graph.add_node(name, id=id, seed=id in starts)
    for one in relations:
        graph.add_edge(
            names[one.subject_id],
            names[one.object_id],
            key=one.id,
            predicate=one.predicate,
            role=one.role,
            degree=one.degree,
            similarity=one.similarity,
        )
    return graph


def graph_of_store(store: GraphIndexStore) -> MultiDiGraph[str]:
    """Return all that the passages of an index state; see `GraphRAGIndex.to_networkx`."""
    import networkx as nx

    snapshot = store.snapshot()
    ids = sorted(snapshot.passage_ids(np.flatnonzero(snapshot.passages.owners >= 0)))
    names: dict[str, str] = {}
    graph: MultiDiGraph[str] = nx.MultiDiGraph()
    for start in range(0, len(ids), BATCH):
        stated = [
            (id, mention.triplet, passage.node.node_id)
            for passage in store.get_passages(ids[start : start + BATCH])
            for id, mention in zip(passage.relation_ids, passage.mentions)
        ]
        spelled: dict[str, str] = {}
        for _, triplet, _ in stated:
            spelled.setdefault(triplet.subject_id, triplet.subject)
            spelled.setdefault(triplet.object_id, triplet.object)
        new = [id for id in spelled if id not in names]
        for id, row in zip(new, snapshot.entity_rows(new).tolist()):
            names[id] = snapshot.entity_names[row] if row >= 0 else spelled[id]
            graph.add_node(names[id], id=id)
        for id, triplet, passage_id in stated:
            subject, object = names[triplet.subject_id], names[triplet.object_id]
            if not graph.has_edge(subject, object, key=id):
                graph.add_edge(subject, object, key=id, predicate=triplet.predicate, passages=[])
            graph.edges[subject, object, id]["passages"].append(passage_id)
    return graph
