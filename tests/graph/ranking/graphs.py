"""A small graph with vectors, and an in-memory answerer of what rankings ask for."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from llama_index_graph_rag.graph.ranking.base import (
    PassagesWanted,
    Recall,
    Request,
    Scored,
    VectorsFound,
    VectorsWanted,
)
from llama_index_graph_rag.graph.snapshot import EntityKey, GraphSnapshot, PassageKey, RelationKey
from llama_index_graph_rag.triplets import Triplet

PASSAGES = {
    "euler": [("Euler", "was taught by", "Johann Bernoulli"), ("Euler", "was born in", "Basel")],
    "lagrange": [("Lagrange", "was a student of", "Euler"), ("Lagrange", "wrote", "Mechanics")],
    "bernoulli": [
        ("Johann Bernoulli", "had the son", "Daniel Bernoulli"),
        ("Johann Bernoulli", "had the brother", "Jakob Bernoulli"),
    ],
    "daniel": [
        ("Daniel Bernoulli", "wrote", "Hydrodynamica"),
        ("Daniel Bernoulli", "was", "Swiss"),
    ],
    "basel": [("Basel", "lies on", "the Rhine")],
    "fish": [("the salmon", "swims in", "the Rhine")],
}


def scored(rows, scores) -> Scored:
    return Scored(np.asarray(rows, np.int32), np.asarray(scores, np.float32))


NOTHING = scored([], [])


@dataclass
class World:
    """A graph whose vectors are random but fixed by name, and a log of what was asked."""

    graph: GraphSnapshot
    triplets: dict[str, Triplet]
    asked: list[Request] = field(default_factory=list)

    @classmethod
    def build(cls, passages=None) -> World:
        passages = PASSAGES if passages is None else passages
        triplets = [Triplet(*t) for of_one in passages.values() for t in of_one]
        names = [n for t in triplets for n in ((t.subject_id, t.subject), (t.object_id, t.object))]
        graph = GraphSnapshot.empty().with_changes(
            entities=[EntityKey(*name) for name in names],
            relations=[RelationKey(t.id, t.subject_id, t.object_id) for t in triplets],
            passages=[
                PassageKey(id, id, tuple(Triplet(*t).id for t in of_one), "", "")
                for id, of_one in passages.items()
            ],
        )
        return cls(graph, {t.id: t for t in triplets})

    def vectors(self, kind: str, ids) -> np.ndarray:
        made = [np.random.default_rng([*f"{kind}{id}".encode()]).standard_normal(16) for id in ids]
        array = np.array(made, np.float32).reshape(-1, 16)
        return array / np.maximum(np.linalg.norm(array, axis=1, keepdims=True), 1e-9)

    def near(self, kind: str, vector, limit=100) -> Scored:
        n, ids = {
            "relation": (self.graph.n_relations, self.graph.relation_ids),
            "passage": (self.graph.n_passages, self.graph.passage_ids),
        }[kind]
        cosines = self.vectors(kind, ids(np.arange(n))) @ vector
        best = np.argsort(-cosines, kind="stable")[:limit]
        return scored(best, cosines[best])

    def recall(self, question: str, *, names=(), limit=100, permitted=None, **over) -> Recall:
        vector = self.vectors("question", [question])[0]
        entities = self.graph.entity_rows([Triplet(name, "", "").subject_id for name in names])
        found = {
            "relations": self.near("relation", vector, limit),
            "passages": self.near("passage", vector, limit),
            "entities": scored(entities, np.ones(len(entities))),
            **over,
        }
        return Recall(question, vector, permitted=permitted, **found)

    def answer(self, request: Request):
        self.asked.append(request)
        if isinstance(request, VectorsWanted):
            return VectorsFound(
                self.vectors("entity", self.graph.entity_ids(request.entities)),
                self.vectors("relation", self.graph.relation_ids(request.relations)),
            )
        assert isinstance(request, PassagesWanted)
        return [self.near("passage", vector, request.limit) for vector in request.vectors]

    def run(self, process):
        """Drive a pure process to its outcome."""
        answer = None
        while True:
            try:
                answer = self.answer(process.send(answer))
            except StopIteration as stop:
                return stop.value

    def ids(self, ranked) -> list[str]:
        return self.graph.passage_ids(ranked.passages.rows)

    def mask(self, *ids: str) -> np.ndarray:
        mask = np.zeros(self.graph.n_passages, bool)
        mask[self.graph.passage_rows(ids)] = True
        return mask
