"""A large corpus with hubs, seeded: passages, their triplets, questions, and stub embeddings.

The degrees follow `ZipfGraph`. A passage holds a sentence for each of its triplets and two others,
so that evidence has to be looked for. Names are made of syllables, two words each.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import TextNode
from numpy.typing import NDArray
from pydantic import PrivateAttr

from benchmarks.stub_vectors import DIMENSION, text_vector
from benchmarks.zipf_graph import ZipfGraph

_SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
_PREDICATES = (
    "was born in", "was a student of", "worked at", "wrote", "married", "lived in", "was led by",
    "founded", "is part of", "won", "lies near", "was named after", "succeeded", "belongs to",
)  # fmt: skip
_FILLERS = (
    "Little else is known about this time.",
    "Several letters of the period mention it as well.",
    "The sources do not agree on the year.",
    "Dr. Muller treats the question at length in his third book.",
)

Statement = tuple[str, str, str]


@dataclass(frozen=True)
class Corpus:
    """Passages side by side with their triplets, and questions that name entities."""

    nodes: list[TextNode] = field(repr=False)
    triplets: list[list[Statement]] = field(repr=False)
    questions: list[tuple[str, tuple[str, str]]] = field(repr=False)


def zipf_corpus(
    *,
    n_passages: int = 20_000,
    n_triplets: int = 100_000,
    n_entities: int = 30_000,
    largest_hub: int = 5_000,
    n_questions: int = 50,
    seed: int = 7,
) -> Corpus:
    """Return a corpus; the same arguments give the same one.

    A question is asked of the two ends of a triplet drawn at random, so that hubs come as often
    as the law has it. `largest_hub` is the number of triplets of the best linked entity.
    """
    graph = ZipfGraph(n_entities, n_triplets, n_passages, largest_hub, seed)
    subjects, objects, passages = graph.arrays()
    objects = np.where(subjects == objects, (objects + 1) % n_entities, objects)
    rng = np.random.default_rng(seed)
    predicates = rng.integers(0, len(_PREDICATES), n_triplets)
    names = [_name(row) for row in rng.permutation(n_entities)]
    of_passage: list[list[Statement]] = [[] for _ in range(n_passages)]
    for subject, predicate, object, passage in zip(subjects, predicates, objects, passages):
        of_passage[passage].append((names[subject], _PREDICATES[predicate], names[object]))
    nodes = [
        TextNode(id_=f"passage-{row:05d}", text=_text(of_one, row), metadata={"page": row % 300})
        for row, of_one in enumerate(of_passage)
    ]
    questions = []
    for row in rng.integers(0, n_triplets, n_questions):
        ends = names[subjects[row]], names[objects[row]]
        questions.append((f"What do {ends[0]} and {ends[1]} have in common?", ends))
    return Corpus(nodes, of_passage, questions)


def _name(number: int) -> str:
    base = len(_SYLLABLES)
    digits = [(number // base**place) % base for place in range(3)]
    first, second = _SYLLABLES[digits[0]] + "lo", _SYLLABLES[digits[1]] + _SYLLABLES[digits[2]]
    return f"{first.title()} {second.title()}"


def _text(triplets: list[Statement], row: int) -> str:
    sentences = [f"{' '.join(triplet)}." for triplet in triplets]
    fillers = [_FILLERS[(row + place) % len(_FILLERS)] for place in range(2)]
    return " ".join([fillers[0], *sentences, fillers[1]])


class StubEmbedding(BaseEmbedding):
    """`text_vector` as an embedding model that remembers its texts; `seconds` were spent in it."""

    model_name: str = f"stub-{DIMENSION}"
    embed_batch_size: int = 2_048
    _words: dict[str, NDArray[np.float32]] = PrivateAttr(default_factory=dict)
    _known: dict[str, list[float]] = PrivateAttr(default_factory=dict)
    _seconds: float = PrivateAttr(default=0.0)

    @property
    def seconds(self) -> float:
        """Time spent in the model so far."""
        return self._seconds

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        start = time.perf_counter()
        known = self._known
        for text in texts:
            if text not in known:
                known[text] = text_vector(text, self._words).tolist()
        vectors = [known[text] for text in texts]
        self._seconds += time.perf_counter() - start
        return vectors

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embeddings([query])[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embeddings([query])[0]
