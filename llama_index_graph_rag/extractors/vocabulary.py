"""The entities of a question without an LLM: the names that the graph knows, found in its text."""

from __future__ import annotations

import math
import threading
import weakref
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from ahocorasick_rs import AhoCorasick
from numpy.typing import NDArray

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.extractors.query import EntityExtractor, QueryEntities, QueryEntity
from llama_index_graph_rag.extractors.spans import STOP_WORDS, WORD, capitalised, is_apart
from llama_index_graph_rag.graph.snapshot import GraphSnapshot
from llama_index_graph_rag.identity import canonical_name

Rows = NDArray[np.int32]

_MOST_READ = 64
_start = attrgetter("start")


class VocabularyEntityExtractor(EntityExtractor):
    """Finds the graph's own names in a question, in any script, without an LLM.

    The longest names win where they overlap. What no whole name covers can still be part of some:
    "Euler" finds "Leonhard Euler" where at most `max_meanings` names have it; neighbouring words
    that one name has are taken together.

    Weights: 1 for a whole name; `partial_weight` for a part, divided by the number of names it can
    mean. A single word without a capital says less: its weight falls with the number of passages
    that name the entity (idf) and, in a question that has capitals elsewhere, is multiplied by
    `common_weight`; such a question's small words are not taken as parts at all.

    Parameters
    ----------
    max_meanings
        Number of names up to which a part of a name is taken. Default 3; 0 for whole names only.
    partial_weight
        Weight of a part of a name, in (0, 1]. Default 0.5.
    common_weight
        Weight of a single word without a capital beside words that have one, in (0, 1].
        Default 0.25.
    stop_words
        Canonical words that are not taken alone. Default `STOP_WORDS`.

    Raises
    ------
    GraphRAGValueError
        If a number is out of range.

    Notes
    -----
    The automaton (Aho and Corasick, "Efficient string matching", 1975) is built at the first
    question and kept as long as the graph's base lives; names that came later go into a small one
    of their own. 250,000 names take about two seconds and 50 MB.

    Examples
    --------
    >>> from llama_index_graph_rag.graph.snapshot import EntityKey, PassageKey, RelationKey
    >>> from llama_index_graph_rag.triplets import Triplet
    >>> t = Triplet("Leonhard Euler", "was a student of", "Johann Bernoulli")
    >>> graph = GraphSnapshot.empty().with_changes(
    ...     entities=[EntityKey(t.subject_id, t.subject), EntityKey(t.object_id, t.object)],
    ...     relations=[RelationKey(t.id, t.subject_id, t.object_id)],
    ...     passages=[PassageKey("p1", "book", (t.id,), "", "")],
    ... )
    >>> found = VocabularyEntityExtractor().extract("Was Johann Bernoulli Euler's teacher?", graph)
    >>> [(entity.name, entity.weight) for entity in found]
    [('johann bernoulli', 1.0), ('euler', 0.5)]
    """

    def __init__(
        self,
        *,
        max_meanings: int = 3,
        partial_weight: float = 0.5,
        common_weight: float = 0.25,
        stop_words: Iterable[str] = STOP_WORDS,
    ) -> None:
        if max_meanings < 0:
            raise GraphRAGValueError(f"max_meanings={max_meanings} must be 0 or more")
        for name, weight in (("partial", partial_weight), ("common", common_weight)):
            if not 0 < weight <= 1:
                raise GraphRAGValueError(f"{name}_weight={weight} must lie in (0, 1]")
        self.max_meanings = max_meanings
        self.partial_weight = partial_weight
        self.common_weight = common_weight
        self.stop_words = frozenset(stop_words)
        self._lock = threading.Lock()
        self._built: dict[int, _Automaton] = {}

    def extract(self, question: str, graph: GraphSnapshot) -> QueryEntities:
        """Return the names of `graph` that `question` has, in its order."""
        text = canonical_name(question)
        if not text or not graph.n_entities:
            return QueryEntities()
        capitals = capitalised(question, self.stop_words)
        wholes, words = self._matches(text, graph, capitals)
        chosen = _longest(wholes)
        chosen += _longest(
            [
                run
                for run in self._partial(text, words, graph, capitals)
                if not _is_within(run, chosen)
            ]
        )
        once = {text[span.start : span.end]: span for span in sorted(chosen, reverse=True)}
        return QueryEntities(
            tuple(
                self._entity(name, span, graph, capitals)
                for name, span in sorted(once.items(), key=lambda item: item[1])
            )
        )

    def _matches(
        self, text: str, graph: GraphSnapshot, capitals: frozenset[str]
    ) -> tuple[list[_Span], list[_Word]]:
        wholes: list[_Span] = []
        words: dict[tuple[int, int], list[Rows]] = {
            match.span(): [] for match in WORD.finditer(text)
        }
        alive = graph.incidence.entity_degree
        for automaton in self._automata(graph):
            for pattern, start, end in automaton.find(text):
                if not is_apart(text, start, end):
                    continue
                row = int(automaton.whole[pattern])
                span = text[start:end]
                if row >= 0 and alive[row] and not self._is_stop(span, capitals):
                    wholes.append(_Span(start, end, (row,), True))
                if (start, end) in words:
                    rows = automaton.parts_of(pattern)
                    words[start, end].append(rows[alive[rows] > 0])
        return wholes, [
            _Word(start, end, text[start:end], _union(rows), text[start:end] in self.stop_words)
            for (start, end), rows in words.items()
        ]

    def _is_stop(self, span: str, capitals: frozenset[str]) -> bool:
        words = set(WORD.findall(span))
        return bool(words) and words <= self.stop_words - capitals

    def _partial(
        self, text: str, words: list[_Word], graph: GraphSnapshot, capitals: frozenset[str]
    ) -> list[_Span]:
        """Return the runs of words that at most `max_meanings` names have in common."""
        runs: list[_Span] = []
        for i, first in enumerate(words):
            rows, end, is_gap = first.rows, first.end, False
            is_name = not capitals or first.text in capitals
            if first.is_stop or not len(rows):
                continue
            said = {first.text}
            for at in range(i + 1, len(words)):
                word = words[at]
                if word.is_stop:
                    is_gap = True
                    continue
                if word.text in said:  # again: of a name, or of a question that repeats itself
                    break
                said.add(word.text)
                both = np.intersect1d(rows, word.rows, assume_unique=True)
                if is_gap:
                    both = _containing(text[first.start : word.end], both, graph)
                if not len(both):
                    break
                rows, end, is_gap = both, word.end, False
                is_name = is_name or word.text in capitals
            if is_name and len(rows) <= self.max_meanings:
                runs.append(_Span(first.start, end, tuple(rows.tolist()), False))
        return runs

    def _entity(
        self, name: str, span: _Span, graph: GraphSnapshot, capitals: frozenset[str]
    ) -> QueryEntity:
        weight = 1.0 if span.is_whole else self.partial_weight / len(span.rows)
        words = set(WORD.findall(name))
        if capitals.isdisjoint(words) and len(words - self.stop_words) <= 1:
            frequency = int(graph.incidence.entity_frequency(list(span.rows)).sum())
            n_passages = max(graph.n_passages, frequency)
            weight *= math.log1p(n_passages / frequency) / math.log1p(n_passages)
            if capitals:
                weight *= self.common_weight
        return QueryEntity(name, tuple(graph.entity_ids(list(span.rows))), weight)

    def _automata(self, graph: GraphSnapshot) -> Iterator[_Automaton]:
        names = graph.entity_names
        n_base = len(names) - len(names.tail)
        with self._lock:
            base = self._built_for(names.offsets, lambda: islice(names, n_base), 0)
            late = self._built_for(names, lambda: names.tail, n_base) if names.tail else None
        yield base
        if late is not None:
            yield late

    def _built_for(
        self, owner: object, names: Callable[[], Iterable[str]], first_row: int
    ) -> _Automaton:
        key = id(owner)
        if key not in self._built:
            self._built[key] = _Automaton.build(names(), first_row, self.stop_words)
            weakref.finalize(owner, self._built.pop, key, None)
        return self._built[key]


class _Span(NamedTuple):
    start: int
    end: int
    rows: tuple[int, ...]
    is_whole: bool


class _Word(NamedTuple):
    start: int
    end: int
    text: str
    rows: Rows
    is_stop: bool


@dataclass(frozen=True, slots=True)
class _Automaton:
    """Names and their words in one automaton; per pattern the name's row and the rows it is in."""

    matcher: AhoCorasick | None
    whole: Rows
    indptr: NDArray[np.int64]
    rows: Rows

    @classmethod
    def build(cls, names: Iterable[str], first_row: int, stop_words: frozenset[str]) -> _Automaton:
        canonical = [canonical_name(name) for name in names]
        patterns: dict[str, int] = {}
        for name in canonical:
            if name:
                patterns.setdefault(name, len(patterns))
        pairs: list[int] = []
        rows: list[int] = []
        for row, name in enumerate(canonical, first_row):
            words = set(WORD.findall(name))
            if len(words) > 1:
                for word in words - stop_words:
                    pairs.append(patterns.setdefault(word, len(patterns)))
                    rows.append(row)
        whole = np.full(len(patterns), -1, dtype=np.int32)
        for row, name in enumerate(canonical, first_row):
            if name:
                whole[patterns[name]] = row
        owners = np.array(pairs, dtype=np.int32)
        indptr = np.zeros(len(patterns) + 1, dtype=np.int64)
        np.cumsum(np.bincount(owners, minlength=len(patterns)), out=indptr[1:])
        by_pattern = np.array(rows, dtype=np.int32)[np.argsort(owners, kind="stable")]
        matcher = AhoCorasick(patterns, store_patterns=False) if patterns else None
        return cls(matcher, whole, indptr, by_pattern)

    def find(self, text: str) -> list[tuple[int, int, int]]:
        """Return all (pattern, start, end), overlapping ones too."""
        if self.matcher is None:
            return []
        return self.matcher.find_matches_as_indexes(text, overlapping=True)

    def parts_of(self, pattern: int) -> Rows:
        return self.rows[self.indptr[pattern] : self.indptr[pattern + 1]]


def _longest(spans: Iterable[_Span]) -> list[_Span]:
    """Return the longest spans that do not overlap, in order; of equals the first."""
    chosen: list[_Span] = []
    for span in sorted(spans, key=lambda span: (span.start - span.end, span.start)):
        # Chosen ones are apart and in order: only the two beside it can overlap it.
        at = bisect(chosen, span.start, key=_start)
        if (not at or chosen[at - 1].end <= span.start) and (
            at == len(chosen) or span.end <= chosen[at].start
        ):
            chosen.insert(at, span)
    return chosen


def _is_within(span: _Span, apart: list[_Span]) -> bool:
    at = bisect(apart, span.start, key=_start)
    return at > 0 and span.end <= apart[at - 1].end


def _containing(span: str, rows: Rows, graph: GraphSnapshot) -> Rows:
    # Many rows would be slow to read, and so common a run is not worth it.
    if len(rows) > _MOST_READ:
        return rows[:0]
    kept = [r for r in rows.tolist() if span in canonical_name(graph.entity_names[r])]
    return np.array(kept, dtype=np.int32)


def _union(parts: list[Rows]) -> Rows:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)
