"""Canonical names and deterministic ids.

Ids are content hashes, so that writing the same thing twice is an upsert and one corpus gives
the same index everywhere.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from functools import lru_cache

_APOSTROPHES = "\u2018\u2019\u201a\u201b\u02bc\u02b9\u2032\u00b4\u0060\uff07"
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
_INVISIBLE = "\u00ad\u200b\u2060\ufeff"
_FOLD = str.maketrans(
    {
        **dict.fromkeys(_APOSTROPHES, "'"),
        **dict.fromkeys(_DASHES, "-"),
        **dict.fromkeys(_INVISIBLE, None),
    }
)
# Quotes and sentence punctuation only, never a Unicode category: the # of C# and the * of A* are
# punctuation by category. A leading full stop before a letter is kept for names like .NET.
_EDGE = (
    r"\s\"',;:\u00ab\u00bb\u201c\u201d\u201e\u201f\u3001\u3002\u300c\u300d\u300e\u300f\u300a\u300b"
)
_LEADING = re.compile(rf"^(?:[{_EDGE}]|\.{{2,}}|\.(?!\w))+")
_TRAILING = re.compile(rf"[{_EDGE}.]+$")
# Names on which the steps below change nothing but case; most are, and the steps are slow.
_PLAIN = re.compile(r"[A-Za-z0-9](?:(?:[!-_a-z{-~]| (?! ))*[A-Za-z0-9])?")
_SURROGATES = re.compile("[\ud800-\udfff]")
_REMEMBERED = 2**15


def clean_text(text: str) -> str:
    """Return `text` with lone surrogates replaced, so that it can be encoded and stored.

    Examples
    --------
    >>> clean_text("Euler")
    'Euler'
    """
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


@lru_cache(maxsize=_REMEMBERED)
def canonical_name(text: str) -> str:
    """Return the form of a name by which spellings of one entity are equal.

    NFKC, casefold, one apostrophe, one dash, single spaces, and no quotes or sentence punctuation
    at the edges. Letters, marks and symbols of every script stay. The function is idempotent.

    Parameters
    ----------
    text
        A name as it was written.

    Returns
    -------
    str
        The canonical name; empty if nothing but white space and edge punctuation was given.

    Examples
    --------
    >>> canonical_name("  Leonhard   Euler. ")
    'leonhard euler'
    >>> canonical_name("Jakob\u2019s") == canonical_name("Jakob's")
    True
    >>> [canonical_name(name) for name in ("C", "C++", "C#", "A*")]
    ['c', 'c++', 'c#', 'a*']
    """
    if _PLAIN.fullmatch(text):
        return text.lower()
    name = clean_text(text)
    while True:
        before = name
        name = unicodedata.normalize("NFKC", name.translate(_FOLD)).casefold()
        name = " ".join(unicodedata.normalize("NFKC", name).translate(_FOLD).split())
        name = _TRAILING.sub("", _LEADING.sub("", name))
        if name == before:
            return name


def _digest(*parts: str) -> str:
    # Each part carries its length: ("ab", "c") and ("a", "bc") must not meet.
    text = "".join([f"{len(part)}:{part}" for part in parts])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@lru_cache(maxsize=_REMEMBERED)
def entity_id(name: str) -> str:
    """Return the id of the entity called `name`: 32 hexadecimal digits.

    Examples
    --------
    >>> entity_id("leonhard Euler") == entity_id("Leonhard Euler")
    True
    """
    return _digest("entity", canonical_name(name))


@lru_cache(maxsize=_REMEMBERED)
def relation_id(subject: str, predicate: str, object: str) -> str:
    """Return the id of a triplet: a hash of its structure, not of its text.

    Examples
    --------
    >>> a = relation_id("New York", "Times", "square")
    >>> a == relation_id("New", "York Times", "square")
    False
    """
    return _digest("relation", entity_id(subject), canonical_name(predicate), entity_id(object))


def content_hash(*parts: str) -> str:
    """Return a hash of any texts, each kept apart from the next.

    Examples
    --------
    >>> content_hash("ab", "c") == content_hash("a", "bc")
    False
    """
    return _digest("content", *(clean_text(part) for part in parts))
