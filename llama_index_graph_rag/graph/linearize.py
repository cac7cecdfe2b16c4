"""Triplets, paths and what is known of an entity, written out as text for an LLM to read.

Pure functions over plain values: names, predicates, sentences and the ids of their sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llama_index_graph_rag.errors import GraphRAGValueError


class Arrow(NamedTuple):
    """One step of a path: `forward` if it runs from the entity before to the entity after."""

    predicate: str
    forward: bool = True


class Quote(NamedTuple):
    """A sentence that states a triplet, and the id of its source."""

    sentence: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Statement:
    """A triplet with the sentences that state it.

    Examples
    --------
    >>> Statement("Euler", "was a student of", "Johann Bernoulli").text
    'Euler was a student of Johann Bernoulli'
    """

    subject: str
    predicate: str
    object: str
    quotes: tuple[Quote, ...] = ()

    @property
    def text(self) -> str:
        """The triplet as one sentence without a full stop."""
        return " ".join(map(one_line, (self.subject, self.predicate, self.object)))


def one_line(text: str) -> str:
    r"""Return `text` with white space collapsed, so that it cannot break a line.

    Examples
    --------
    >>> one_line(" Leonhard\n Euler ")
    'Leonhard Euler'
    """
    return " ".join(text.split())


def path_line(names: Sequence[str], arrows: Sequence[Arrow]) -> str:
    """Return a path as ``A -[r]-> X <-[s]- B``.

    Parameters
    ----------
    names
        Names of the n entities.
    arrows
        The n - 1 steps between them.

    Raises
    ------
    GraphRAGValueError
        If the numbers do not fit.

    Examples
    --------
    >>> path_line(["A", "X", "B"], [Arrow("r"), Arrow("s", forward=False)])
    'A -[r]-> X <-[s]- B'
    """
    if len(names) != len(arrows) + 1:
        raise GraphRAGValueError(
            f"a path of {len(names)} names has {len(names) - 1} steps, not {len(arrows)}"
        )
    parts = [one_line(names[0])]
    for arrow, name in zip(arrows, names[1:]):
        predicate = one_line(arrow.predicate)
        parts.append(f"-[{predicate}]->" if arrow.forward else f"<-[{predicate}]-")
        parts.append(one_line(name))
    return " ".join(parts)


def statement_lines(statements: Iterable[Statement]) -> list[str]:
    """Return a line a statement, each quote once: where it comes again only its source is named.

    Examples
    --------
    >>> quote = Quote("Euler studied under Johann Bernoulli, a brother of Jakob.", "p1")
    >>> for line in statement_lines([
    ...     Statement("Euler", "was a student of", "Johann Bernoulli", (quote,)),
    ...     Statement("Johann Bernoulli", "was a brother of", "Jakob Bernoulli", (quote,)),
    ... ]):
    ...     print(line)
    - Euler was a student of Johann Bernoulli. "Euler studied under Johann Bernoulli, a brother of \
Jakob." [p1]
    - Johann Bernoulli was a brother of Jakob Bernoulli. [p1]
    """
    quoted: set[Quote] = set()
    lines = []
    for statement in statements:
        line = f"- {statement.text}."
        for quote in statement.quotes:
            if quote.sentence and quote not in quoted:
                quoted.add(quote)
                line += f' "{one_line(quote.sentence)}"'
            if quote.source:
                line += f" [{one_line(quote.source)}]"
        lines.append(line)
    return lines


def path_document(
    names: Sequence[str], arrows: Sequence[Arrow], statements: Iterable[Statement]
) -> str:
    """Return a path document: the path in one line, then its triplets with what states them.

    Examples
    --------
    >>> print(path_document(
    ...     ["A", "B"], [Arrow("knows")], [Statement("A", "knows", "B", (Quote("A met B.", "p1"),))]
    ... ))
    A -[knows]-> B
    - A knows B. "A met B." [p1]
    """
    return "\n".join([path_line(names, arrows), *statement_lines(statements)])


def entity_document(name: str, statements: Iterable[Statement]) -> str:
    """Return an entity document: the name, then what is known of it, in the order given.

    Examples
    --------
    >>> print(entity_document("A", [Statement("A", "knows", "B")]))
    A
    - A knows B.
    """
    return "\n".join([one_line(name), *statement_lines(statements)])
