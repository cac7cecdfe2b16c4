"""One entry of a keyword list: its name, cleaned, and the other forms that stand beside it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_MAX_NAME = 120
_EMOJI = r"(?:[\u2190-\u21ff\u2300-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff]\ufe0f?)"
BULLET = re.compile(
    r"^\s*(?:[-+*\u2022\u00b7\u25aa\u25e6\u25cf\u2023\u2013\u2014]\s+|\u2022|\d\ufe0f?\u20e3\s*|"
    rf"{_EMOJI}+\s*(?=\w)|"
    r"[(\uff08]?\d{1,2}\s*[.)\u3001\uff0e\uff09:]\s*|[a-h][.)]\s+)"
)
_EMPHASIS = re.compile(r"^(?P<mark>\*{1,3}|_{1,3}|`{1,3}|~~)(?P<inner>.+?)(?P=mark)")
_NONE = re.compile(
    r"\W*(?:none|n/?a|nil|null|no (?:keywords?|synonyms?|entities)[^,]*|无|無|なし)?\W*", re.I
)
_ABBREVIATION = re.compile(r"(?:\b\w\.\w|\b(?:inc|ltd|corp|co|bros|jr|sr|dr|st|etc))\.$", re.I)
_ASIDE = re.compile(r"(?<=\S)\s*[(\uff08](?P<inner>[^()\uff08\uff09]+)[)\uff09]$")
_TYPES = (
    r"person|people|place|location|city|country|organi[sz]ation|company|event|concept|date|time|"
    r"entity|object|topic|main topic|work|product|人物|地点|组织|事件|概念|作品"
)
_COMMENT = re.compile(
    rf"(?:{_TYPES}|\W*(?:0?\.\d+|1\.0+|\d{{1,3}}\s*%)\W*|[\w ]*[:=：]\s*[\d./%]+|"
    r"(?:most|very|less|least)? ?(?:important|relevant)|(?:high|medium|low)(?: \w+)?)",
    re.I,
)
_ALSO = re.compile(r"^(?:also (?:known as|called|spelled|written)|a\.?k\.?a\.?|or)\s+", re.I)
_FUNCTION_WORD = re.compile(
    r"\b(?:an?|the|of|in|on|at|for|to|by|with|from|and|who|whom|which|that|where|when|is|are|was|"
    r"were|his|her|its|their|this|these|as|der|die|das|ein|eine|le|la|les|une?|el|los|的)\b",
    re.I,
)


def clean(name: str) -> str:
    """Return `name` without bullets, quotes, emphasis, brackets; "" if no name is left.

    Examples
    --------
    >>> [clean(name) for name in ("1. **Euler**", "「欧拉」", "Apple Inc.", "Basel.", "n/a")]
    ['Euler', '欧拉', 'Apple Inc.', 'Basel', '']
    """
    name = name.strip().strip("\u200b")
    if len(name) > 4 * _MAX_NAME:
        return ""
    while True:
        before = name
        name = BULLET.sub("", name).strip()
        emphasis = _EMPHASIS.match(name)
        if emphasis and emphasis.end() == len(name):
            name = emphasis["inner"].strip()
        name = name.strip("\"'“”‘’「」『』«»` ")
        if not _ABBREVIATION.search(name):
            name = name.rstrip(".。;；!！:：").strip()
        if name[:1] + name[-1:] in ("[]", "()", "<>", "{}", "（）", "【】", "《》"):
            name = name[1:-1].strip()
        name = name.lstrip("[{").rstrip("]}").strip()
        name = re.sub(r"^#(?=\w)", "", name)
        if name == before:
            break
    if _NONE.fullmatch(name) or len(name) > _MAX_NAME or not re.search(r"\w", name):
        return ""
    return name


def forms(entry: str) -> list[str]:
    """Return the name that `entry` states, then the other forms of it that the entry adds.

    Other forms stand after a spaced slash or in closing parentheses: another script, initials, or
    what "also known as" leads in. A comment in parentheses (a type, a score) is cut; anything else
    there belongs to the name.

    Examples
    --------
    >>> forms("World Health Organization (WHO)"), forms("长城（Great Wall）")
    (['World Health Organization', 'WHO'], ['长城', 'Great Wall'])
    >>> forms("USA / America"), forms("AC/DC"), forms("Paris (Texas)"), forms("Euler (score: 0.9)")
    (['USA', 'America'], ['AC/DC'], ['Paris (Texas)'], ['Euler'])
    """
    found: list[str] = []
    for part in re.split(r"\s+/\s+", entry):
        name, others = clean(part), []
        while aside := _ASIDE.search(name):
            inner, head = aside["inner"].strip(), name[: aside.start()]
            if _is_other_form(head, inner):
                others.append(_ALSO.sub("", inner))
            elif not (_COMMENT.fullmatch(inner) or _EMPHASIS.fullmatch(head)):
                break
            name = clean(head)
        found += [name, *map(clean, others)]
    return [name for name in found if name]


def with_tail(item: str) -> tuple[str, str]:
    """Return what stands before and after the colon or dash of a list item; "" for no tail.

    Examples
    --------
    >>> with_tail("**Euler**: a mathematician"), with_tail("Paris - France"), with_tail("Star-Lord")
    (('Euler', 'a mathematician'), ('Paris', 'France'), ('Star-Lord', ''))
    """
    bold = _EMPHASIS.match(item)
    if bold and (tail := re.fullmatch(r"\s*(?:[-:：–—]\s*(.*))?", item[bold.end() :])):
        return bold["inner"], tail[1] or ""
    head, *tails = re.split(r"\s[-–—]+\s|[:：]\s", item, maxsplit=1)
    return head, tails[0] if tails else ""


def is_bold(item: str) -> bool:
    """Tell whether `item` is a name set in bold or the like, and at most an explanation after."""
    bold = _EMPHASIS.match(item)
    return bool(bold and re.match(r"\s*(?:[-:：–—]|$)", item[bold.end() :]))


def are_forms(tail: str, names: Sequence[str]) -> bool:
    """Tell whether what follows a name lists other forms of it, rather than explains it.

    `names` are the parts of `tail`.

    Examples
    --------
    >>> are_forms("global warming", ["global warming"]), are_forms("his town", ["his town"])
    (True, False)
    """
    if _FUNCTION_WORD.search(tail) or any(_COMMENT.fullmatch(name) for name in names):
        return False
    return all(len(name.split()) <= 3 for name in names)


def _is_other_form(name: str, inner: str) -> bool:
    if _ALSO.match(inner):
        return True
    initials = "".join(word[0] for word in re.findall(r"\w+", name)).casefold()
    letters = re.sub(r"\W", "", inner).casefold()
    if len(letters) > 1 and (letters == initials or (inner.isupper() and letters in initials)):
        return True
    if _COMMENT.fullmatch(inner):
        return False
    return _scripts(name).isdisjoint(_scripts(inner)) and bool(_scripts(inner))


def _scripts(text: str) -> set[str]:
    return {unicodedata.name(letter, "").split(" ")[0] for letter in text if letter.isalpha()}
