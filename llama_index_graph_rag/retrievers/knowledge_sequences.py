"""Paths of a graph as knowledge sequences: ranked, without repetitions, written out."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from llama_index_graph_rag.identity import clean_text, content_hash
from llama_index_graph_rag.stores.base import EntityRef, Path, Properties

MAX_VALUE_LENGTH = 200
"""Characters of one property value, name or predicate that are written out."""

Step = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Selection:
    """The paths that are kept, best first, with their scores, and how many are not.

    Attributes
    ----------
    paths, scores
        Side by side; scores lie in (0, 1] and strictly decrease.
    contained
        Paths left out because a kept one holds all of them.
    cut
        Paths left out because of the limit.
    """

    paths: tuple[Path, ...] = ()
    scores: tuple[float, ...] = ()
    contained: int = 0
    cut: int = 0


def nearness(path: Path, matched: Iterable[str]) -> float:
    """Return how near the entities of a path are to the matched ones: in [0, 1], 1 if all are.

    The mean over the path's entities of 1 / (1 + d), d being the steps along the path to the
    nearest matched entity.

    Examples
    --------
    >>> a, b = EntityRef("a", "A"), EntityRef("b", "B")
    >>> from llama_index_graph_rag.stores.base import Edge
    >>> nearness(Path((a, b), (Edge("knows", True),)), {"a"})
    0.75
    """
    wanted = set(matched)
    places = [place for place, ref in enumerate(path.entities) if ref.id in wanted]
    if not places:
        return 0.0
    steps = (min(abs(place - other) for other in places) for place in range(len(path.entities)))
    return sum(1 / (1 + distance) for distance in steps) / len(path.entities)


def select(
    paths: Sequence[Path],
    matched: Sequence[str],
    limit: int,
    similarities: Sequence[float] | None = None,
) -> Selection:
    """Return the best `limit` paths, none of which is part of another.

    A path's score is its `nearness`, or with `similarities` (cosines to the question, one a path)
    the mean of the two; ties go to the entity matched first. A path that a better one contains,
    read in either direction, is left out; one that contains a better path takes its place.
    """
    near = [nearness(path, matched) for path in paths]
    if similarities is not None:
        near = [(a + max(0.0, b)) / 2 for a, b in zip(near, similarities)]
    rank = {id: place for place, id in enumerate(matched)}

    def order(index: int) -> tuple[float, int, int]:
        return -near[index], rank.get(paths[index].entities[0].id, len(rank)), index

    kept: list[tuple[Path, str, float]] = []
    contained = cut = 0
    for index in sorted(range(len(paths)), key=order):
        path, steps = paths[index], _steps(paths[index])
        forward, backward = _key(steps), _key(steps[::-1])
        if any(forward in other or backward in other for _, other, _ in kept):
            contained += 1
            continue
        inside = [
            place
            for place, (_, other, _) in enumerate(kept)
            if other in forward or other in backward
        ]
        if inside:
            contained += len(inside)
            kept[inside[0]] = (path, forward, kept[inside[0]][2])
            for place in reversed(inside[1:]):
                del kept[place]
        elif len(kept) < limit:
            kept.append((path, forward, near[index]))
        else:
            cut += 1
    scores = strictly_decreasing([score for _, _, score in kept])
    return Selection(tuple(path for path, _, _ in kept), tuple(scores), contained, cut)


def strictly_decreasing(scores: Sequence[float]) -> list[float]:
    """Return `scores`, which do not increase, in (0, 1] and with ties broken by a hair.

    Examples
    --------
    >>> [round(score, 6) for score in strictly_decreasing([1.0, 1.0, 0.5])]
    [1.0, 0.999999, 0.5]
    """
    result: list[float] = []
    ceiling = 1.0
    for rank, score in enumerate(scores):
        floor = 1e-6 * (len(scores) - rank)
        value = min(max(score, floor), ceiling)
        result.append(value)
        ceiling = value - 1e-6 if value > 2e-6 else math.nextafter(value, 0.0)
    return result


@dataclass(slots=True)
class Writer:
    """Writes paths as lines; entities that share a name are told apart by their ids.

    Attributes
    ----------
    shortened
        Names and property values that were cut to MAX_VALUE_LENGTH characters so far.
    """

    paths: Sequence[Path]
    shortened: int = 0
    _shared: set[str] = field(init=False)
    _names: dict[EntityRef, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        ids = defaultdict(set)
        for path in self.paths:
            for ref in path.entities:
                ids[_flat(ref.name)[:MAX_VALUE_LENGTH]].add(ref.id)
        self._shared = {name for name, own in ids.items() if len(own) > 1}

    def line(self, path: Path) -> str:
        """Return ``A{name: A} -[r:{since: 2016}]-> B{name: B} <-[s]- C{name: C}``."""
        parts = [self._entity(path.entities[0])]
        for edge, ref in zip(path.edges, path.entities[1:]):
            properties = self._properties(edge.properties)
            inside = f"[{self._short(edge.predicate)}{':' + properties if properties else ''}]"
            parts.append(f"-{inside}->" if edge.forward else f"<-{inside}-")
            parts.append(self._entity(ref))
        return " ".join(parts)

    def name(self, ref: EntityRef) -> str:
        """Return the entity's name, with its id where the name alone is ambiguous."""
        if ref not in self._names:
            shared = _flat(ref.name)[:MAX_VALUE_LENGTH] in self._shared
            name = self._short(ref.name)
            id = ref.id if len(ref.id) <= MAX_VALUE_LENGTH else content_hash(ref.id)
            self._names[ref] = f"{name} ({_flat(id)})" if shared else name
        return self._names[ref]

    def _entity(self, ref: EntityRef) -> str:
        return self.name(ref) + self._properties(ref.properties)

    def _properties(self, properties: Properties) -> str:
        if not properties:
            return ""
        pairs = (f"{self._short(key)}: {self._value(value)}" for key, value in properties.items())
        return f"{{{', '.join(pairs)}}}"

    def _value(self, value: object) -> str:
        items = value if isinstance(value, (list, tuple)) else None
        text = self._short(str(value) if items is None else ", ".join(map(str, items)))
        return text if items is None else f"[{text}]"

    def _short(self, text: str) -> str:
        text = _flat(text)
        if len(text) > MAX_VALUE_LENGTH:
            self.shortened += 1
            text = f"{text[:MAX_VALUE_LENGTH]}..."
        return text


def sentence(path: Path) -> str:
    """Return a path as plain text, for an embedding model.

    Examples
    --------
    >>> from llama_index_graph_rag.stores.base import Edge
    >>> refs = EntityRef("a", "A"), EntityRef("b", "B"), EntityRef("c", "C")
    >>> sentence(Path(refs, (Edge("knows", True), Edge("made", False))))
    'A knows B. C made B.'
    """
    parts = []
    for before, edge, after in zip(path.entities, path.edges, path.entities[1:]):
        left, right = (before, after) if edge.forward else (after, before)
        parts.append(_flat(f"{left.name} {edge.predicate} {right.name}."))
    return " ".join(parts)


def by_start(paths: Sequence[Path], lines: Sequence[str], writer: Writer) -> dict[str, list[str]]:
    """Return the lines under the name of the entity at which each starts."""
    grouped: dict[str, list[str]] = {}
    for path, line in zip(paths, lines):
        grouped.setdefault(writer.name(path.entities[0]), []).append(line)
    return grouped


def shortened(names: Sequence[str], most: int = 20) -> str:
    """Return names for a message: the first ones, each cut to MAX_VALUE_LENGTH characters.

    Examples
    --------
    >>> shortened(["Euler", "Basel", "Bern"], most=2)
    'Euler, Basel and 1 more'
    """
    shown = [_flat(name) for name in names[:most]]
    text = ", ".join(
        name if len(name) <= MAX_VALUE_LENGTH else f"{name[:MAX_VALUE_LENGTH]}..." for name in shown
    )
    return f"{text} and {len(names) - most:,} more" if len(names) > most else text


def _steps(path: Path) -> list[Step]:
    steps = []
    for before, edge, after in zip(path.entities, path.edges, path.entities[1:]):
        left, right = (before.id, after.id) if edge.forward else (after.id, before.id)
        steps.append((left, edge.predicate, right, repr(sorted(edge.properties.items()))))
    return steps


def _key(steps: Sequence[Step]) -> str:
    # As one text with marks that no repr contains, so that "is part of" is a substring test.
    return "\n" + "".join(f"{step!r}\n" for step in steps)


def _flat(text: str) -> str:
    return " ".join(clean_text(text).split())
