"""Small graphs with one trait each, to try stores and rankings on."""

from __future__ import annotations

from dataclasses import dataclass

from llama_index_graph_rag.triplets import Mention, Triplet


@dataclass(frozen=True)
class ToyPassage:
    """A passage: each triplet is one sentence of its text.

    Examples
    --------
    >>> passage = ToyPassage("p1", (Triplet("A", "knows", "B"),))
    >>> passage.text
    'A knows B.'
    >>> passage.mentions[0].evidence(passage.text)
    'A knows B.'
    """

    id: str
    triplets: tuple[Triplet, ...]

    @property
    def text(self) -> str:
        """The sentences, joined by a space."""
        return " ".join(f"{triplet.text}." for triplet in self.triplets)

    @property
    def mentions(self) -> tuple[Mention, ...]:
        """The triplets with the place of their sentences."""
        mentions, start = [], 0
        for triplet in self.triplets:
            end = start + len(triplet.text) + 1
            mentions.append(Mention(triplet, start, end))
            start = end + 1
        return tuple(mentions)


@dataclass(frozen=True)
class ToyGraph:
    """Passages with triplets; entity names differ by more than their spelling."""

    name: str
    passages: tuple[ToyPassage, ...]

    @property
    def triplets(self) -> tuple[Triplet, ...]:
        """Each distinct triplet, in order."""
        return tuple(dict.fromkeys(t for passage in self.passages for t in passage.triplets))

    @property
    def entities(self) -> tuple[str, ...]:
        """Each entity name, in order."""
        return tuple(dict.fromkeys(n for t in self.triplets for n in (t.subject, t.object)))


def toy_graph(name: str, *passages: tuple[str, list[tuple[str, str, str]]]) -> ToyGraph:
    """Build a toy graph from (passage id, triplets) pairs.

    Examples
    --------
    >>> toy_graph("edge", ("p1", [("A", "knows", "B")])).entities
    ('A', 'B')
    """
    return ToyGraph(
        name,
        tuple(
            ToyPassage(id, tuple(Triplet(*triplet) for triplet in triplets))
            for id, triplets in passages
        ),
    )


EMPTY = toy_graph("empty")
ONE_EDGE = toy_graph("one edge", ("p1", [("Euler", "was a student of", "Johann Bernoulli")]))
SELF_LOOP = toy_graph(
    "self-loop", ("p1", [("Narcissus", "loves", "Narcissus"), ("Echo", "loves", "Narcissus")])
)
PARALLEL = toy_graph(
    "parallel edges",
    ("p1", [("A", "advises", "B"), ("A", "employs", "B"), ("A", "knows", "C")]),
    ("p2", [("A", "zitiert", "B")]),
)
BOTH_DIRECTIONS = toy_graph(
    "both directions", ("p1", [("A", "writes to", "B"), ("B", "answers", "A")])
)
DISCONNECTED = toy_graph(
    "disconnected",
    ("p1", [("A", "knows", "B"), ("B", "knows", "C")]),
    ("p2", [("X", "knows", "Y")]),
    ("without triplets", []),
)
CYCLE = toy_graph(
    "cycle",
    ("p1", [("A", "next", "B"), ("B", "next", "C"), ("C", "next", "D"), ("D", "next", "A")]),
)
SHARED = toy_graph(
    "a fact in two passages",
    ("p1", [("A", "knows", "B"), ("A", "admires", "B")]),
    ("p2", [("A", "knows", "B"), ("B", "knows", "C")]),
)
HUB = toy_graph(
    "hub",
    ("p1", [("hub", "has", f"spoke {n:03d}") for n in range(150)]),
    ("p2", [("hub", "turns", "spoke 077"), ("spoke 001", "touches", "spoke 002")]),
)
ODD_NAMES = toy_graph(
    "odd names",
    ("quote ' and \"", [("O'Brien", 'says "hi" to', 'Dwayne "The Rock"'), ("C", "begot", "C++")]),
    ("line\nbreak \\ and {}", [("C++", "inspired", "C#"), ("欧拉", "师从", "约翰·伯努利")]),
    ("é 🧮", [("أويلر", "عاش في", "برلين"), ("🧮", "counts", "back\\slash"), ("C#", "%s", "a{b}")]),
)

TOY_GRAPHS = (
    EMPTY,
    ONE_EDGE,
    SELF_LOOP,
    PARALLEL,
    BOTH_DIRECTIONS,
    DISCONNECTED,
    CYCLE,
    SHARED,
    HUB,
    ODD_NAMES,
)
"""All of them."""
