"""Stop words of many languages, and which language a short text is in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain

import stopwordsiso

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.identity import canonical_name

# Nouns that web search engines once called stop words; a question may well be about them.
_CONTENT_WORDS = """
area areas bill bottom case cases computer course date edge effect face faces fact facts fire
group home homepage index information interest interests invention kind length line member members
microsoft mill million minus netscape novel number numbers order page pages part parts place
places point points problem problems research result ring room rooms section shell side site state
states stop street system test text thing title turn value volume web webpage website week word
words work works world year years
"""
_CONTENT = frozenset(_CONTENT_WORDS.split())
_SCRIPTS = (
    ("ja", re.compile("[\u3040-\u30ff]")),
    ("zh", re.compile("[\u3400-\u9fff]")),
    ("ko", re.compile("[\uac00-\ud7a3]")),
    ("th", re.compile("[\u0e00-\u0e7f]")),
)


@lru_cache(maxsize=64)
def stop_words(language: str) -> frozenset[str]:
    """Return the stop words of a language, in canonical form (stopwords-iso, 57 languages).

    Raises
    ------
    GraphRAGValueError
        If there is no list for `language`, a two-letter ISO 639-1 code.

    Examples
    --------
    >>> "the" in stop_words("en"), "der" in stop_words("de"), "world" in stop_words("en")
    (True, True, False)
    """
    if language not in stopwordsiso.langs():
        raise GraphRAGValueError(
            f"no stop words for language {language!r}; there are lists for "
            f"{', '.join(sorted(stopwordsiso.langs()))}"
        )
    words = frozenset(canonical_name(word) for word in stopwordsiso.stopwords(language)) - {""}
    return words - _CONTENT if language == "en" else words


def guess_language(words: Iterable[str]) -> str:
    """Return the language whose stop words `words` has most of; English if none is ahead.

    The words are given in canonical form.

    Examples
    --------
    >>> guess_language(["wer", "war", "der", "lehrer", "von", "euler"])
    'de'
    >>> guess_language(["euler"])
    'en'
    """
    seen = frozenset(words)
    text = "".join(seen)
    for language, script in () if text.isascii() else _SCRIPTS:
        if script.search(text):
            return language
    languages = _languages()
    known = languages.keys() & seen
    if len(known & stop_words("en")) >= len(known & _foreign()):  # no language has more of them
        return "en"
    hits = Counter(chain.from_iterable(languages[word] for word in known))
    best = max(hits.values(), default=0)
    return "en" if hits["en"] == best else min(name for name, hit in hits.items() if hit == best)


@lru_cache(maxsize=1)
def _foreign() -> frozenset[str]:
    """Return the words that are stop words of any language but English."""
    return frozenset(word for word, languages in _languages().items() if languages != ["en"])


@lru_cache(maxsize=1)
def _languages() -> dict[str, list[str]]:
    """Return the languages of which a word is a stop word, by word."""
    languages: dict[str, list[str]] = {}
    for language in stopwordsiso.langs():
        for word in stop_words(language):
            languages.setdefault(word, []).append(language)
    return languages
