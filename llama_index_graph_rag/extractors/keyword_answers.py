"""Reading keywords and synonyms from what an LLM answered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from llama_index_graph_rag.extractors.keyword_forms import (
    BULLET,
    are_forms,
    forms,
    is_bold,
    with_tail,
)
from llama_index_graph_rag.identity import canonical_name
from llama_index_graph_rag.llm_output import read_json, without_thoughts

Section = Literal["keywords", "synonyms", "other"]
Tails = Literal["forms", "comments", "mixed"]

_MAX_CHARACTERS = 5_000
_SYNONYM_NAMES = (
    r"synonym\w*|alias(?:es)?|variants?|variations?|(?:other|alternative|related) (?:forms?|names?|"
    r"terms?|words?|spellings?|keywords?)|also known as|a\.?k\.?a\.?|"
    r"sin[oó]n[io]m\w*|同义词|近义词|同義語|類義語|別名|别名|동의어"
)
_KEYWORD_NAMES = (
    r"(?:key[ -]?)?(?:words?|terms?|phrases?)|keywords?|entit(?:y|ies)|schl[uü]sselw[oö]rter|"
    r"stichw[oö]rter|mots?[ -]cl[eé]s?|palabras? claves?|parole chiave|palavras[ -]chave|"
    r"关键词|關鍵詞|关键字|实体|キーワード|키워드|الكلمات(?: المفتاحية)?|answer|output|result"
)
_OTHER_NAMES = (
    r"notes?|explanations?|reasoning|rationale|question|query|text|thoughts?|注|注意|说明|解释|问题|"
    r"質問|問題"
)
_LABEL = re.compile(
    rf"(?:(?<![^\W\u2e80-\uffff])(?:(?P<synonyms>{_SYNONYM_NAMES})|(?P<keywords>{_KEYWORD_NAMES}))|"
    rf"\b(?P<other>{_OTHER_NAMES}))(?![a-zà-ÿ])[^:：\n,;、，；]{{0,40}}?[\"'*_`\]}}>\s]*[:：】][\"'*_`]*",
    re.I,
)
_HEADING = re.compile(
    rf"\W*(?:(?P<synonyms>{_SYNONYM_NAMES})|(?P<keywords>{_KEYWORD_NAMES}))\W*", re.I
)
_FENCE = re.compile(r"^\s*```.*$", re.M)
_JSON = re.compile(r"[\[{]\s*(?:[\"'\[{]|\])")
_INLINE_NUMBER = re.compile(r"(?:^|\s+)[(\uff08]?\d{1,2}[.)\uff09]\s+")
_SEPARATOR = re.compile(r"\s+(?=#\w)|\s*[,;|\uff0c\u3001\uff1b\t\u2022\u061b\u060c]\s*")
_AND = re.compile(r"^(?:and|or|und|et|y|e|及|和)\s+", re.I)
_OPENER = re.compile(
    r"^\W*(?:sure|certainly|of course|ok(?:ay)?|here (?:is|are)|here's|the (?:key|following)|"
    r"based on|i (?:have|hope|am|can|think|extracted|would)|i'm|let me|these|this|please|note|hope|"
    r"from the|in the|to answer|thank|natürlich|gerne|voici|aquí)\b|"
    r"^\W*(?:好的|当然|以下|根据|希望|这些|はい|以上)",
    re.I,
)
_TABLE_RULE = re.compile(r"\s*\|?(?:\s*:?-{2,}:?\s*\|)+(?:\s*:?-{2,}:?)?\s*")
_MARKED = re.compile(r"\*\*(.+?)\*\*|`(.+?)`|[\"“](.+?)[\"”]|[「『](.+?)[」』]")
_DENIAL = re.compile(r"\b(?:no|not|none|cannot|can't|unable|n/a)\b|没有|無|无", re.I)
_SENTENCE_END = re.compile(r"[.!?。！？]$")


@dataclass(slots=True)
class KeywordAnswer:
    """What an answer held, in the order written, each name once."""

    keywords: list[str] = field(default_factory=list)
    synonyms: list[str] = field(default_factory=list)


def parse_keywords(answer: str) -> KeywordAnswer:
    r"""Return the keywords and synonyms in an LLM's answer, whatever its form.

    Understood are labels such as ``KEYWORDS:`` and ``SYNONYMS:`` (in several languages, in
    markdown, after a preamble), one line or several, bullets and numbers, Latin, Chinese and
    Arabic commas, and JSON. Prose before, between and after is left out. It never raises.

    Examples
    --------
    >>> parse_keywords("Sure!\n**KEYWORDS:** Peter Quill, Gamora\nSYNONYMS: Star-Lord").keywords
    ['Peter Quill', 'Gamora']
    >>> parse_keywords('["欧拉", "巴塞尔"]').keywords
    ['欧拉', '巴塞尔']
    >>> parse_keywords("1. Euler\n2. Basel").keywords
    ['Euler', 'Basel']
    """
    text = without_thoughts(answer)[:_MAX_CHARACTERS]
    found = KeywordAnswer()
    plain = _FENCE.sub("", text)
    for section, name in _from_json(text) or _from_text(_without_tables(plain)) or _marked(plain):
        if section != "other":
            getattr(found, section).append(name)
    found.keywords = unique_names(found.keywords)
    found.synonyms = unique_names(found.synonyms, seen=found.keywords)
    return found


def unique_names(names: Iterable[str], *, seen: Iterable[str] = ()) -> list[str]:
    """Return `names` in order, each canonical name once, without those in `seen`.

    Examples
    --------
    >>> unique_names(["Euler", "euler", "Basel", " "], seen=["basel"])
    ['Euler']
    """
    taken = {canonical_name(name) for name in seen} | {""}
    kept = []
    for name in names:
        canonical = canonical_name(name)
        if canonical not in taken:
            taken.add(canonical)
            kept.append(name.strip())
    return kept


def _from_json(text: str) -> list[tuple[Section, str]]:
    start = _JSON.search(text)
    if start is None:
        return []
    body = text[start.start() :]
    labels = _labels(text[: start.start()])
    if labels and body[0] == "[" and _labels(body):
        return []  # KEYWORDS: [...] SYNONYMS: [...]: each is read for itself, as text
    section = _section(labels[-1]) if labels else "keywords"
    value = read_json(_without_broken_end(body), wanted=("keywords", "synonyms")).value
    return list(_walk(value, section))


def _without_broken_end(body: str) -> str:
    """Cut the text that a truncated answer ends in: half a name is another name."""
    quotes = [quote.start() for quote in re.finditer(r'(?<!\\)"', body)]
    return body[: quotes[-1]] if len(quotes) % 2 and len(quotes) > 1 else body


def _walk(value: object, section: Section, depth: int = 0) -> Iterator[tuple[Section, str]]:
    if isinstance(value, str):
        yield from _entry(section, value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield section, str(value)
    elif depth > 6:
        return
    elif isinstance(value, list):
        if len(value) == 1 and isinstance(value[0], str):
            value = list(_split(value[0]))
        for item in value:
            yield from _walk(item, section, depth + 1)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            label = _HEADING.fullmatch(re.sub(r"[\d_]+", " ", str(key)))
            if label:
                inner = list(_split(item)) if isinstance(item, str) else item
                yield from _walk(inner, _section(label), depth + 1)
            elif re.fullmatch(r"\W*(?:\d+|name|value|id)\W*", str(key), re.I):
                yield from _walk(item, section, depth + 1)
            elif re.fullmatch(rf"\W*(?:{_OTHER_NAMES}|score|rank|weight|type)\W*", str(key), re.I):
                continue
            else:  # {"Peter Quill": ["Star-Lord"]}: the key is the keyword
                yield from _walk(str(key), section, depth + 1)
                if isinstance(item, (list, Mapping, str)):
                    yield from _walk(item, "synonyms", depth + 1)


def _from_text(text: str) -> list[tuple[Section, str]]:
    lines = [line.strip() for line in text.splitlines()]
    sections = [_section(label) for line in lines for label in _labels(line)]
    sections += [_section(heading) for heading in map(_HEADING.fullmatch, lines) if heading]
    labelled = any(section != "other" for section in sections)
    items = [line for line in lines if BULLET.match(line)]
    tails = _tails(items)
    section: Section = "other" if labelled else "keywords"
    found: list[tuple[Section, str]] = []
    for line in lines:
        if not line:
            section = section if labelled else "keywords"  # a remark ends with its paragraph
            continue
        heading = _HEADING.fullmatch(line)
        if heading:
            section = _section(heading)
            continue
        labels = _labels(line)
        rest = line[: labels[0].start()] if labels else line
        if not labels and not _is_prose(line) and (line in items or labelled or not items):
            found += _names(section, rest, tails)
        for label, following in zip(labels, [*labels[1:], None]):
            section = _section(label)
            found += _names(section, line[label.end() : following.start() if following else None])
    return found


def _tails(items: list[str]) -> Tails:
    """Tell what the tails of ``name: tail`` items are, all of a list alike."""
    pairs = [with_tail(item[_end_of_bullet(item) :]) for item in items]
    if len(pairs) < 2 or not all(tail for _, tail in pairs):
        return "mixed"
    alike = all(are_forms(tail, list(_split(tail))) for _, tail in pairs)
    return "forms" if alike else "comments"


def _without_tables(text: str) -> str:
    """Write each row of a markdown table as lines ``KEYWORDS: ...`` and ``SYNONYMS: ...``."""
    lines = text.splitlines()
    rules = [row for row, line in enumerate(lines) if row and _TABLE_RULE.fullmatch(line)]
    for rule in reversed(rules):
        end = next((i for i in range(rule + 1, len(lines)) if "|" not in lines[i]), len(lines))
        rows = [_cells(line) for line in lines[rule + 1 : end]]
        columns = _columns(_cells(lines[rule - 1]), rows)
        lines[rule - 1 : end] = [
            f"{section.upper()}: {row[column]}"
            for row in rows
            for column, section in columns
            if column < len(row) and row[column]
        ]
    return "\n".join(lines)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def _columns(header: list[str], rows: list[list[str]]) -> list[tuple[int, Section]]:
    headings = [(column, _HEADING.fullmatch(cell)) for column, cell in enumerate(header)]
    known = [(column, _section(heading)) for column, heading in headings if heading]
    if known:
        return known
    for column in range(len(header)):
        if any(re.search(r"[^\W\d]", cell) for row in rows for cell in row[column : column + 1]):
            return [(column, "keywords")]
    return []


def _marked(text: str) -> list[tuple[Section, str]]:
    """Return what sentences set in bold, in quotes or as code: the last resort."""
    sentences = [line for line in text.splitlines() if not _DENIAL.search(line)]
    names = [
        name
        for name in _marks("\n".join(sentences))
        if not (_HEADING.fullmatch(name) or _labels(name))
    ]
    return [pair for name in names for pair in _entry("keywords", name)]


def _marks(text: str) -> list[str]:
    return [next(filter(None, mark)) for mark in _MARKED.findall(text)]


def _labels(line: str) -> list[re.Match[str]]:
    return list(_LABEL.finditer(line))


def _section(match: re.Match[str]) -> Section:
    groups = match.groupdict()
    if groups.get("synonyms"):
        return "synonyms"
    return "keywords" if groups.get("keywords") else "other"


def _is_prose(line: str) -> bool:
    if BULLET.match(line):
        return False
    words = len(line.split())
    if line.endswith((":", "：")) or (_OPENER.match(line) and words > 1):
        return True
    parts = _SEPARATOR.split(line)
    if _SENTENCE_END.search(line) and words >= 4 and len(parts) < 3:
        return True
    return max(len(part.split()) for part in parts) >= 9


def _names(section: Section, text: str, tails: Tails = "mixed") -> Iterator[tuple[Section, str]]:
    bulleted = _end_of_bullet(text)
    body = text[bulleted:]
    pieces = _INLINE_NUMBER.split(body) if bulleted else [body]
    for piece in pieces:
        head, tail = with_tail(piece) if bulleted else (piece, "")
        if tails == "forms":
            yield from _entry(section, head)
            for part in _split(tail):
                yield from _entry(_aside(section), part)
            continue
        explained = tails == "comments" or is_bold(piece) or len(tail.split()) >= 4
        parts = list(_split(head if explained else piece))
        if len(parts) == 1 and not bulleted:
            marked = _marks(parts[0])
            parts = marked if len(marked) > 1 else re.split(r"\s+/\s+", parts[0])
        for part in parts:
            yield from _entry(section, part)


def _entry(section: Section, text: str) -> Iterator[tuple[Section, str]]:
    for position, name in enumerate(forms(text)):
        yield _aside(section) if position else section, name


def _aside(section: Section) -> Section:
    return "synonyms" if section == "keywords" else section


def _end_of_bullet(text: str) -> int:
    bullet = BULLET.match(text)
    return bullet.end() if bullet else 0


def _split(text: str) -> Iterator[str]:
    parts = [part for part in _SEPARATOR.split(text) if part]
    if len(parts) == 1 and "\n" in text:
        parts = text.splitlines()
    for position, part in enumerate(parts):
        yield _AND.sub("", part) if position and position == len(parts) - 1 else part
