"""Keywords of a question without an LLM, and the interface of keyword extractors."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.extractors.keyword_answers import unique_names
from llama_index_graph_rag.extractors.llm_calls import LLMUsage
from llama_index_graph_rag.extractors.stop_words import guess_language, stop_words
from llama_index_graph_rag.identity import canonical_name

SplitPhrases = Literal["always", "fallback", "never"]

_QUOTED = re.compile(
    '"([^"]+)"|\u201c([^\u201d]+)\u201d|\u300a([^\u300b]+)\u300b|\u300c([^\u300d]+)\u300d'
)
# Marks of scripts whose vowels are marks belong to their word.
_MARKS = (
    "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0dff\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"
)
_WORD = re.compile(rf"\.?[^\W_](?:[\w{_MARKS}'\u2019&/.+#*\u00b7\u30fb\u30fc-]*[\w{_MARKS}+#*])?")
_ELISION = re.compile("^(?:[cdjlmnst]|qu|dell|all|un)['\u2019](?=\\w)", re.I)
_POSSESSIVE = re.compile("['\u2019]s$")
_PAUSE = re.compile(r"[,;:?!()\[\]\uff0c\u3001\uff1b\uff1a\uff1f\uff01\u3002]|\.(?:\s|$)")
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
_HIRAGANA = re.compile("[\u3040-\u309f]+")
# Of the one-character stop words of Chinese, those that are hardly ever part of a name.
_HAN_PARTICLES = "的了是和与吗呢谁把被及或哪几么这那"
_JOSA = re.compile("(?<=[\uac00-\ud7a3]{2})(?:에서|으로|은|는|이|가|을|를|의|에|와|과|도|로)$")


@dataclass(frozen=True, slots=True)
class Keywords:
    """The names to look up for one question.

    Attributes
    ----------
    keywords
        From the question, best first.
    synonyms
        Other forms of them, likeliest first; none repeats a keyword.
    words
        For each keyword or synonym of several words, its single words without stop words.
    split_phrases
        When `words` are to be looked up: "always" (they are among `names` then), "fallback" (for a
        phrase that matches nothing), or "never".
    raw
        The LLM's answers as they came.
    reason
        Why something stands in for the LLM's answer, or why there is nothing; else None.
    usage
        The LLM's calls and tokens.
    """

    keywords: tuple[str, ...] = ()
    synonyms: tuple[str, ...] = ()
    words: dict[str, tuple[str, ...]] = field(default_factory=dict)
    split_phrases: SplitPhrases = "fallback"
    raw: tuple[str, ...] = ()
    reason: str | None = None
    usage: LLMUsage = field(default_factory=LLMUsage)

    @property
    def names(self) -> list[str]:
        """What to look up first: keywords, synonyms and, if "always", their single words."""
        names = [*self.keywords, *self.synonyms]
        if self.split_phrases == "always":
            names = unique_names([*names, *(word for name in names for word in self.words[name])])
        return names

    def fallback_words(self, unmatched: Iterable[str]) -> list[str]:
        """Return the single words to look up for the names that matched nothing, each once.

        Examples
        --------
        >>> found = Keywords(("Peter Quill",), words={"Peter Quill": ("Peter", "Quill")})
        >>> found.fallback_words(["Peter Quill"])
        ['Peter', 'Quill']
        """
        if self.split_phrases != "fallback":
            return []
        words = (word for name in unmatched for word in self.words.get(name, ()))
        return unique_names(words, seen=self.names)


class KeywordExtractor(ABC):
    """Finds the names to look up for a question."""

    @abstractmethod
    def extract(self, question: str) -> Keywords:
        """Return the keywords of `question`."""

    async def aextract(self, question: str) -> Keywords:
        """Async twin of `extract`; by default in a thread."""
        return await asyncio.to_thread(self.extract, question)


class PhraseKeywordExtractor(KeywordExtractor):
    """Finds keywords without an LLM: runs of words between stop words and punctuation.

    After Rose et al., "Automatic keyword extraction from individual documents" (RAKE, 2010), cut
    down to one question: quoted spans stay whole and come first, then runs with a capital that is
    not the sentence's first, then the others, longer ones first. Stop words come from
    stopwords-iso (57 languages). Chinese is split at particles and longer stop words, Japanese at
    hiragana, and common particles are taken off Korean words.

    Parameters
    ----------
    max_keywords
        Default 5.
    split_phrases
        See `Keywords`. Default "fallback".
    language
        Two-letter code; None guesses by stop words and script.

    Examples
    --------
    >>> PhraseKeywordExtractor().extract("Where did the son of Euler's teacher work?").keywords
    ('Euler', 'son', 'teacher work')
    >>> PhraseKeywordExtractor().extract("欧拉的老师是谁？").keywords
    ('欧拉', '老师')
    """

    def __init__(
        self,
        *,
        max_keywords: int = 5,
        split_phrases: SplitPhrases = "fallback",
        language: str | None = None,
    ) -> None:
        check_choices(max_keywords=max_keywords, split_phrases=split_phrases)
        if language is not None:
            stop_words(language)
        self.max_keywords = max_keywords
        self.split_phrases = split_phrases
        self.language = language

    def extract(self, question: str) -> Keywords:
        """Return the keywords of `question`."""
        language = self.language or language_of(question)
        quoted = [next(filter(None, groups)) for groups in _QUOTED.findall(question)]
        rest = _QUOTED.sub(" ; ", question)
        runs = list(_runs(rest, language))
        runs.sort(key=lambda run: (not run[1], -len(run[0].split()) if run[1] else 0))
        names = unique_names([*quoted, *(name for name, _ in runs)])[: self.max_keywords]
        reason = None if names else "the question holds no keyword: stop words only"
        return with_words(
            Keywords(tuple(names), split_phrases=self.split_phrases, reason=reason), language
        )


def check_choices(*, max_keywords: int, split_phrases: str) -> None:
    """Raise GraphRAGValueError for a number or a choice out of range."""
    if max_keywords < 1:
        raise GraphRAGValueError(f"max_keywords={max_keywords} must be at least 1")
    if split_phrases not in ("always", "fallback", "never"):
        raise GraphRAGValueError(
            f"split_phrases={split_phrases!r} is not 'always', 'fallback' or 'never'"
        )


def language_of(question: str) -> str:
    """Return the two-letter code of the language that `question` seems to be in.

    Examples
    --------
    >>> language_of("Wer war der Lehrer von Euler?")
    'de'
    """
    return guess_language(canonical_name(word) for word in _WORD.findall(question))


def with_words(found: Keywords, language: str) -> Keywords:
    """Return `found` with the single words of its phrases, unless it says "never"."""
    if found.split_phrases == "never":
        return found
    stops = stop_words(language)
    words = {}
    for name in (*found.keywords, *found.synonyms):
        parts = unique_names(_WORD.findall(name))
        kept = [part for part in parts if canonical_name(part) not in stops and len(part) > 1]
        words[name] = tuple(kept) if len(parts) > 1 else ()
    return replace(found, words=words)


def _runs(text: str, language: str) -> Iterator[tuple[str, bool]]:
    """Yield (words side by side between stop words, whether their capitals mean something)."""
    stops = stop_words(language)
    shouted = text.upper() == text
    for clause in _PAUSE.split(text):
        run: list[str] = []
        named = False
        for position, word in enumerate(_WORD.findall(clause)):
            word = _POSSESSIVE.sub("", word)
            if language in ("fr", "it", "ca"):
                word = _ELISION.sub("", word)
            has_capital = word[:1].isupper() and not shouted
            is_stop = canonical_name(word) in stops and not (has_capital and position)
            if run and (is_stop or has_capital != named or _UNSPACED.search(word)):
                yield " ".join(run), named
                run = []
            if _UNSPACED.search(word):
                yield from ((piece, False) for piece in _unspaced(word, stops))
            elif not is_stop:
                stem = _JOSA.sub("", word) if language == "ko" else word
                run.append(stem)
                named = has_capital
                if stem != word:  # a Korean particle ends a phrase
                    yield " ".join(run), named
                    run = []
        if run:
            yield " ".join(run), named


def _unspaced(word: str, stops: frozenset[str]) -> Iterator[str]:
    if _HIRAGANA.search(word):
        pieces = _HIRAGANA.split(word)
    else:
        long = sorted((stop for stop in stops if len(stop) > 1), key=len, reverse=True)
        splitter = "|".join([*map(re.escape, long), f"[{_HAN_PARTICLES}]"])
        pieces = re.split(splitter, word)
    yield from (piece for piece in pieces if piece and canonical_name(piece) not in stops)
