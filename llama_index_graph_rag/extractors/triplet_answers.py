"""Reading triplets from what an LLM answered."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping

from llama_index_graph_rag.extractors.retry import UnusableAnswerError
from llama_index_graph_rag.llm_output import read_json, without_thoughts

_LISTS = ("triplets", "triples", "facts", "relations")
_SUBJECT = ("subject", "subj", "head", "source", "from", "entity1", "entity_1", "s", "h")
_PREDICATE = ("predicate", "pred", "relation", "relationship", "rel", "edge", "verb", "p", "r")
_OBJECT = ("object", "obj", "tail", "target", "to", "entity2", "entity_2", "o", "t")
_NAME = ("name", "text", "type", "label", "id")
_NOTHING = re.compile(r"\W*(?:\[\s*\]|none|n/a|no (?:triplets?|facts?)(?: found)?)\W*", re.I)
_EMPTY_LIST = re.compile(r"\[\s*\]")
_BULLET = re.compile(r"^\s*(?:[-*\u2022]\s+|\d{1,3}[.)\u3001:]\s*)?")
_SEPARATORS = (
    re.compile(r"\s*\|+\s*"),
    re.compile(r"\t+"),
    re.compile(r"\s*(?:-{1,2}\[\s*|\s*\]-{1,2}>|-{1,2}>|=>|\u2192)\s*"),
)
_BRACKETS = re.compile(r"^[(\[<\uff08\u300a](.*)[)\]>\uff09\u300b][.,;\u3002\uff0c]?$", re.S)


def parse_triplets(answer: str) -> list[object]:
    """Return the triplets in an LLM's answer, in JSON or one a line, not yet validated.

    Raises
    ------
    UnusableAnswerError
        If there are none, and the answer does not say that there are none.

    Examples
    --------
    >>> parse_triplets('Sure! ```json {"triplets": [["A", "b", "C"],]} ```')
    [('A', 'b', 'C')]
    >>> parse_triplets('{"triplets": []}')
    []
    >>> parse_triplets("1. (Euler, lived in, Basel)")
    [('Euler', 'lived in', 'Basel')]
    """
    value = read_json(answer, wanted=_LISTS).value
    found = read_triplets(value)
    lines = _lines(without_thoughts(answer))
    if _whole(found) or lines:
        return lines if len(lines) > _whole(found) else found
    # The empty list must have been written: a decoder makes one of a cut-off answer too.
    if _is_hollow(value) and _EMPTY_LIST.search(answer):
        return []
    if _NOTHING.fullmatch(answer):
        return []
    shown = " ".join(answer.split())[:120]
    raise UnusableAnswerError(f"the LLM's answer holds no triplets: {shown!r}")


def _whole(found: list[object]) -> int:
    return sum(isinstance(item, tuple) and len(item) == 3 for item in found)


def read_triplets(value: object) -> list[object]:
    """Return the triplets in a decoded JSON value, each as three parts where it has them.

    Understood are lists of three, dicts under the usual names (an object that is a list makes
    several triplets), strings such as ``A | b | C``, and any of these inside a list or a dict.
    What has another form is returned as it is, so that the caller can count it.

    Examples
    --------
    >>> read_triplets({"triplets": [{"head": "A", "relation": "b", "tail": ["C", "D"]}]})
    [('A', 'b', 'C'), ('A', 'b', 'D')]
    """
    return list(_read(value))


def _lines(answer: str) -> list[object]:
    return [parts for line in answer.splitlines() if (parts := _read_line(line)) is not None]


def _read(value: object, depth: int = 0) -> Iterator[object]:
    if isinstance(value, Mapping):
        yield from _read_mapping(value, depth)
    elif isinstance(value, (list, tuple)):
        flat = bool(value) and all(isinstance(part, (str, int, float)) for part in value)
        if flat and not any(_read_line(str(part)) for part in value):
            yield tuple(str(part) for part in value)
        elif depth > 3:
            yield value
        else:
            for item in value:
                yield from _read(item, depth + 1)
    elif isinstance(value, str):
        yield _read_line(value) or (value,)
    elif value is not None:
        yield (str(value),)


def _read_mapping(value: Mapping[object, object], depth: int) -> Iterator[object]:
    fields = {str(key).strip().casefold(): item for key, item in value.items()}
    parts = [_first(fields, names) for names in (_SUBJECT, _PREDICATE, _OBJECT)]
    if all(part is not None for part in parts):
        subject, predicate, objects = parts
        for item in objects if isinstance(objects, list) else [objects]:
            yield (_name(subject), _name(predicate), _name(item))
    elif any(part is not None for part in parts):
        yield tuple(_name(part) for part in parts if part is not None)
    elif depth > 3:
        yield tuple(map(str, value))
    else:
        for item in value.values():
            if isinstance(item, (Mapping, list)):
                yield from _read(item, depth + 1)


def _first(fields: Mapping[str, object], names: tuple[str, ...]) -> object | None:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _name(value: object) -> str:
    if isinstance(value, Mapping):
        return str(_first({str(key): item for key, item in value.items()}, _NAME) or "")
    return str(value)


def _read_line(line: str) -> tuple[str, ...] | None:
    line = _BULLET.sub("", line).strip()
    for separator in _SEPARATORS:
        parts = tuple(part.strip(" \t\"'`()[]<>") for part in separator.split(line.strip("|")))
        if len(parts) == 3 and all(re.search(r"[^\W_]|[^\x00-\x7f]", part) for part in parts):
            return parts
    bracketed = _BRACKETS.match(line)
    if bracketed:
        inner = bracketed[1].replace("\uff0c", ",").replace("\u3001", ",")
        for delimiter in (";", ","):
            row = _csv_row(inner, delimiter)
            if len(row) == 3:
                return tuple(part.strip().strip("'\"\u201c\u201d") for part in row)
    return None


def _csv_row(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:  # a NUL or an endless field: no triplet
        return []


def _is_hollow(value: object) -> bool:
    items = list(value.values()) if isinstance(value, Mapping) else value
    return isinstance(items, list) and all(_is_hollow(item) for item in items)
