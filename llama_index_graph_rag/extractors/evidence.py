"""Evidence: the sentence of a passage that states a triplet."""

from __future__ import annotations

import logging
import math
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import sentencex

from llama_index_graph_rag.extractors.stop_words import guess_language
from llama_index_graph_rag.identity import clean_text
from llama_index_graph_rag.triplets import Mention, Triplet

_LONGEST = 1_000
logger = logging.getLogger("llama_index_graph_rag")

_TITLE = re.compile(r"\s*([^\n]{1,120}[^\s.!?:;,\u3002\uff01\uff1f\uff0c])[^\S\n]*\n+(?=[^\Wa-z_])")
# With the marks of scripts whose vowels are marks.
_WORD = re.compile(
    r"[\w\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0dff\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff]+"
)
_RARE_SPACE = re.compile(r"[^\S \n\r\t]")  # after an initial, sentencex slices inside them
_ASCII_WORD = re.compile(r"\w+", re.ASCII)  # faster, and the same in ASCII
# Written without spaces: their words are taken as pairs of neighbouring characters.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]+")
# A subject is often the topic, named everywhere; it alone is no evidence, the object alone can be.
_SUBJECT, _PREDICATE, _OBJECT = 0.35, 0.25, 0.4


def sentences(text: str, *, language: str | None = None) -> list[tuple[int, int]]:
    """Return the start and end offsets of the sentences of `text`, without white space around.

    Split by sentencex (Wikimedia; Rust, MIT), whose English rules also serve most other languages.
    A "sentence" over 1,000 characters, such as a table, is cut at its line ends, and a first line
    without an end mark, before one that starts anew, is a title: a sentence of its own.

    Parameters
    ----------
    text
        Any text, in any script.
    language
        Two-letter code, for ordinals and abbreviations such as "3. Mai"; None guesses.

    Examples
    --------
    >>> text = "Dr. Smith came. He left."
    >>> [text[start:end] for start, end in sentences(text)]
    ['Dr. Smith came.', 'He left.']
    """
    text = _RARE_SPACE.sub(" ", clean_text(text))  # as long as before
    if language is None:
        language = guess_language(_tokens(text[:300]))
    title = _TITLE.match(text) if "\n" in text else None
    at = title.end() if title else 0
    spans = [title.span(1)] if title else []
    for sentence in _segments(language, text[at:]):  # lossless: pieces add up
        pieces = [sentence] if len(sentence) <= _LONGEST else sentence.splitlines(keepends=True)
        for piece in pieces:
            stripped = piece.strip()
            if stripped:
                start = at + piece.index(stripped)
                spans.append((start, start + len(stripped)))
            at += len(piece)
    return spans


def _segments(language: str, text: str) -> list[str]:
    try:
        return list(sentencex.segment(language, text))
    except BaseException as error:
        # A fault in its Rust code is not even an Exception; a sentence is not worth a run.
        if type(error).__name__ != "PanicException":
            raise
        logger.warning("a passage of %d characters was not split: %s", len(text), error)
        return [text]


def locate(
    text: str,
    triplets: Sequence[Triplet],
    *,
    language: str | None = None,
    min_coverage: float = 0.4,
) -> list[Mention]:
    """Return a mention for each triplet, with the sentence of `text` that states it.

    The sentence is the one that covers most of the triplet's words, rare words in this text
    counting more; the subject makes 0.35 of it, the predicate 0.25, the object 0.4. The first of
    equals is taken. Words are compared without case and width, scripts without spaces by pairs of
    characters.

    Parameters
    ----------
    text
        The passage.
    triplets
        Triplets found in it.
    language
        As in `sentences`.
    min_coverage
        Share of the triplet's word weight that its sentence must hold, in [0, 1]; below it no
        sentence is named. Default 0.4: most of the object, or the subject and half of the rest.

    Returns
    -------
    list of Mention
        In the order of `triplets`; start and end are None where nothing fits, else
        ``text[start:end]`` is the sentence.

    Examples
    --------
    >>> text = "Euler was a mathematician. He was born in Basel."
    >>> [mention] = locate(text, [Triplet("Euler", "was born in", "Basel")])
    >>> mention.evidence(text)
    'He was born in Basel.'
    """
    spans = sentences(text, language=language) if triplets else []
    holders: dict[str, int] = {}  # for each word the sentences that hold it, as bits
    for index, (start, end) in enumerate(spans):
        for word in _words(text[start:end]):
            holders[word] = holders.get(word, 0) | 1 << index
    whole: dict[str, int] = {}  # for each part of a triplet the sentences that hold all of it
    weighed: dict[str, list[tuple[int, float]]] = {}
    mentions = []
    for triplet in triplets:
        stating = -1
        for part in triplet:
            if part not in whole:
                words = _words_of_part(part)
                whole[part] = -1 if words else 0
                for word in words:
                    whole[part] &= holders.get(word, 0)
            stating &= whole[part]
        if stating:  # mostly: no other sentence can hold more
            mentions.append(Mention(triplet, *spans[(stating & -stating).bit_length() - 1]))
            continue
        scores = [0.0] * len(spans)
        for part, share in zip(triplet, (_SUBJECT, _PREDICATE, _OBJECT)):
            if part not in weighed:
                weighed[part] = _weights(part, holders, len(spans))
            for held, weight in weighed[part]:
                for index in range(held.bit_length()):
                    if held >> index & 1:
                        scores[index] += share * weight
        best = max(scores, default=-1.0)
        stated = best >= min_coverage - 1e-9
        mentions.append(Mention(triplet, *spans[scores.index(best)] if stated else (None, None)))
    return mentions


def _weights(part: str, holders: dict[str, int], n_sentences: int) -> list[tuple[int, float]]:
    """Return the sentences that hold each word of a part, and the word's share of the part."""
    held = [holders.get(word, 0) for word in _words_of_part(part)]
    idf = [math.log1p(n_sentences / (places.bit_count() or 0.5)) for places in held]
    total = sum(idf) or 1.0
    return [(places, weight / total) for places, weight in zip(held, idf) if places]


@lru_cache(maxsize=2**13)
def _words_of_part(part: str) -> frozenset[str]:
    return frozenset(_words(part))


def _words(text: str) -> set[str]:
    words = set(_tokens(text))
    if text.isascii() or not any(map(_UNSPACED.search, words)):
        return words
    found, words = words, set()
    for word in found:
        runs = _UNSPACED.findall(word)
        for run in runs:
            words.update(run[at : at + 2] for at in range(max(len(run) - 1, 1)))
        words.update(rest for rest in (_UNSPACED.split(word) if runs else [word]) if rest)
    return words


def _tokens(text: str) -> list[str]:
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
