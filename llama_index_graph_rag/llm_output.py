"""Tolerant reading of the JSON that an LLM answered: data from outside, never trusted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import json_repair

MAX_CHARACTERS = 100_000
"""What of an answer is read; an honest one is far shorter."""

JSON = dict[str, "JSON"] | list["JSON"] | str | int | float | bool | None

_MAX_DEPTH = 50

_TAG = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)>", re.I)
_FENCE = re.compile(r"```[\w+-]*[ \t]*\n?(.*?)(?:```|\Z)", re.S)
_OPENING = re.compile(r"[{\[]")
_INTEGER = re.compile(r"[-\u2212]?\d+")


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """What was understood of an answer.

    Attributes
    ----------
    value
        Plain Python values: dict, list, str, int, float, bool or None.
    reason
        Why there is nothing, in words; empty if something was understood.
    """

    value: JSON
    reason: str = ""


def read_json(text: str | None, *, wanted: Sequence[str] = ()) -> ReadAnswer:
    r"""Return the JSON value in an LLM's answer; never raises.

    Thoughts in tags, fences, text around, comments, trailing commas, single quotes, bare keys and
    a truncated end are coped with (by the json_repair library). Of several values the first with a
    wanted key is taken, else the longest.

    Parameters
    ----------
    text
        The answer.
    wanted
        Keys of the value that is looked for; spelling variants count (`find`).

    Examples
    --------
    >>> read_json("<think>[1]?</think> Sure: ```json\n{'relations': [1, 2,], // two").value
    {'relations': [1, 2]}
    >>> read_json("I cannot help with that.").reason
    "no JSON in the answer: 'I cannot help with that.'"
    """
    if not text or not text.strip():
        return ReadAnswer(None, "the answer is empty")
    answer = without_thoughts(text[:MAX_CHARACTERS])
    if not answer:
        return ReadAnswer(None, "the answer ends within the LLM's thoughts")
    values = [item for part in _parts(answer) for item in _values(part)]
    if not values:
        shown = repr(" ".join(answer.split())[:80])
        return ReadAnswer(None, f"no JSON in the answer: {shown}")
    for value, _ in values:
        if isinstance(value, dict) and find(value, *wanted) is not None:
            return ReadAnswer(value)
    value = max(values, key=lambda item: item[1])[0]
    return ReadAnswer(value, "the answer is null" if value is None else "")


def without_thoughts(text: str) -> str:
    r"""Return `text` without what the LLM thought in tags, trimmed.

    Examples
    --------
    >>> without_thoughts("<think>Hm.</think>\nParis")
    'Paris'
    """
    kept, depth, start = "", 0, 0
    for tag in _TAG.finditer(text):
        if not depth:
            kept += text[start : tag.start()]
        if not tag[1]:
            depth += 1
        elif depth:
            depth -= 1
        else:
            kept = ""  # the opening tag was part of the prompt
        start = tag.end()
    return (kept if depth else kept + text[start:]).strip("\ufeff \t\r\n")


def find(mapping: Mapping[str, JSON], *names: str) -> JSON:
    """Return the value of the first of `names` that is there, in whatever spelling, else None.

    Case, spaces, hyphens and underscores do not count, nor a plural s.

    Examples
    --------
    >>> find({"Relation IDs": [3]}, "relations", "relation_id")
    [3]
    """
    plain = {_plain(str(key)): value for key, value in reversed(list(mapping.items()))}
    return next((plain[key] for key in map(_plain, names) if plain.get(key) is not None), None)


def as_integer(value: JSON) -> int | None:
    """Return a number as an int, also from a text like "[3]" or "No. 3"; None if there is none.

    Examples
    --------
    >>> [as_integer(value) for value in (3, 3.0, "3", "[3]", "-1", True, "three", float("nan"))]
    [3, 3, 3, 3, -1, None, None, None]
    """
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    found = _INTEGER.findall(value) if isinstance(value, str) else []
    if len(found) != 1 or len(found[0]) > 18:
        return None
    return int(found[0].replace("\u2212", "-"))


def as_items(value: JSON, *names: str) -> list[JSON]:
    """Return the items of the list that `value` is, or that it has under one of `names`.

    A single item counts as a list of it. A dict without any of the names is itself the item.

    Examples
    --------
    >>> as_items({"Entities": ["Euler"]}, "entities"), as_items(["Euler"], "entities")
    (['Euler'], ['Euler'])
    """
    if isinstance(value, dict) and names:
        inner = find(value, *names)
        return as_items(inner) if inner is not None else [value] if value else []
    if isinstance(value, list):
        return value
    return [] if value is None or value == "" else [value]


def as_texts(value: JSON, *names: str) -> list[str]:
    """Return the non-empty texts among the items of `value`; numbers as texts, dicts by `names`.

    Examples
    --------
    >>> as_texts(["Euler", {"name": "Basel"}, None, 1707, " "], "name")
    ['Euler', 'Basel', '1707']
    """
    texts: list[str] = []
    for item in as_items(value):
        if isinstance(item, dict):
            item = find(item, *names)
        if isinstance(item, (str, int, float)) and not isinstance(item, bool):
            texts.append(str(item).strip())
    return [text for text in texts if text]


def _plain(key: str) -> str:
    return re.sub(r"[\s_\-]+", "", key.strip()).casefold().removesuffix("s")


def _parts(answer: str) -> Iterator[str]:
    """Yield the fenced blocks, or the whole answer if there is none with JSON in it."""
    fenced = [block for block in _FENCE.findall(answer) if _OPENING.search(block)]
    yield from fenced or [answer]


def _values(text: str) -> Iterator[tuple[JSON, int]]:
    """Yield the values in `text`, each with its length there."""
    decoder = json.JSONDecoder()
    if text.strip() in ("null", "None"):
        yield None, len(text)
    at = _OPENING.search(text)
    while at is not None:
        start = at.start()
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            yield from _repaired(text[start:])
            return
        yield value, end - start
        at = _OPENING.search(text, end)


def _repaired(text: str) -> Iterator[tuple[JSON, int]]:
    # An opening bracket may belong to the prose before: the first brace is tried by itself too.
    starts = [0]
    brace = text.find("{")
    if brace > 0 and not re.fullmatch(r"\[\s*", text[:brace]):
        starts.append(brace)
    for start in starts:
        value = _repair(text[start:])
        if value:
            yield value, len(text) - start


def _repair(text: str) -> JSON:
    if _depth(text) > _MAX_DEPTH:
        return None  # no answer of ours, and minutes of work for a parser
    try:
        value = json_repair.loads(text, skip_json_loads=True)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, (dict, list)) else None


def _depth(text: str) -> int:
    steps = (1 if c in "{[" else -1 for c in text if c in "{}[]")
    return max(accumulate(steps), default=0)
