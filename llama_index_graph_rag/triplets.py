"""Triplets and their mentions in passages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError
from llama_index_graph_rag.identity import canonical_name, clean_text, entity_id, relation_id

MAX_PART_BYTES = 8_192
"""Longest subject, predicate or object in UTF-8 bytes; three of them fit one Milvus VARCHAR."""


class Triplet(NamedTuple):
    """A (subject, predicate, object) statement, spelled as it was written.

    Examples
    --------
    >>> Triplet("Euler", "was a student of", "Johann Bernoulli").text
    'Euler was a student of Johann Bernoulli'
    """

    subject: str
    predicate: str
    object: str

    @property
    def text(self) -> str:
        """The triplet as one sentence: what is embedded and shown to an LLM."""
        return f"{self.subject} {self.predicate} {self.object}"

    @property
    def id(self) -> str:
        """The relation id."""
        return relation_id(*self)

    @property
    def subject_id(self) -> str:
        """The subject's entity id."""
        return entity_id(self.subject)

    @property
    def object_id(self) -> str:
        """The object's entity id."""
        return entity_id(self.object)


@dataclass(frozen=True, slots=True)
class Mention:
    """A triplet as one passage states it.

    Attributes
    ----------
    triplet
        The spelling in this passage.
    start, end
        Offsets in the passage's text of the sentence that states it; None where not known.

    Examples
    --------
    >>> text = "He was Swiss. Euler lived in Basel."
    >>> Mention(Triplet("Euler", "lived in", "Basel"), 14, 35).evidence(text)
    'Euler lived in Basel.'
    """

    triplet: Triplet
    start: int | None = None
    end: int | None = None

    def evidence(self, text: str) -> str:
        """Return the stating sentence of `text`, or all of `text` where it is not known."""
        return text if self.start is None or self.end is None else text[self.start : self.end]


@dataclass(frozen=True, slots=True)
class InvalidTriplet:
    """A triplet that was left out, and why."""

    triplet: tuple[str, ...]
    reason: str


def as_triplet(value: object) -> Triplet:
    """Return `value`, a sequence of three strings, as a Triplet with trimmed parts.

    Raises
    ------
    GraphRAGTypeError
        If it is not three strings.
    GraphRAGValueError
        If a part is longer than MAX_PART_BYTES.
    """
    given: Sequence[object] = ()
    # A tuple or a list mostly, which is found out fast.
    if isinstance(value, (tuple, list)) or (
        isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    ):
        given = value
    if len(given) != 3:
        raise GraphRAGTypeError(
            f"a triplet is three strings (subject, predicate, object), got {_short(value)}"
        )
    parts = []
    for part in given:
        if not isinstance(part, str):
            raise GraphRAGTypeError(
                f"each part of a triplet is a string, got {type(part).__name__} "
                f"in {_short(value)}; convert it with str()"
            )
        part = clean_text(part).strip()
        if 4 * len(part) > MAX_PART_BYTES < len(part.encode()):
            raise GraphRAGValueError(
                f"a triplet part of {len(part.encode()):,} bytes is over the limit of "
                f"{MAX_PART_BYTES:,} ({_short(part)}); shorten or leave out this triplet"
            )
        parts.append(part)
    return Triplet(*parts)


def unique_triplets(values: Iterable[object]) -> tuple[list[Triplet], list[InvalidTriplet]]:
    """Split `values` into the valid triplets, each once and in order, and those left out.

    A triplet with a part that has an empty canonical name is left out, not raised for: extractors
    produce them now and then, and one must not cost a passage.

    Examples
    --------
    >>> valid, invalid = unique_triplets([("A", "b", "C"), ("a", "b", "c"), ("A", "", "C")])
    >>> valid, invalid[0].reason
    ([Triplet(subject='A', predicate='b', object='C')], 'the predicate is empty')
    """
    valid: dict[str, Triplet] = {}
    invalid: list[InvalidTriplet] = []
    for value in values:
        triplet = as_triplet(value)
        if all(map(canonical_name, triplet)):
            valid.setdefault(triplet.id, triplet)
        else:
            empty = Triplet._fields[[*map(canonical_name, triplet)].index("")]
            invalid.append(InvalidTriplet(tuple(triplet), f"the {empty} is empty"))
    return list(valid.values()), invalid


def _short(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."
