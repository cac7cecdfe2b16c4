"""Reading keywords and synonyms from what an LLM answered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from llama_index_graph_rag.identity import canonical_name
from llama_index_graph_rag.llm_output import read_json, without_thoughts

Section = Literal["keywords", "synonyms", "other"]

_MAX_CHARACTERS = 5_000
_MAX_NAME = 120
_SYNONYM_NAMES = (
    r"synonym\w*|alias(?:es)?|variants?|variations?|(?:other|alternative|related) (?:forms?|names?|"
    r"terms?|words?|spellings?|keywords?)|sin[oó]n[io]m\w*|同义词|近义词|同義語|類義語|別名|别名|동의어"
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
    rf"\b(?:(?P<synonyms>{_SYNONYM_NAMES})|(?P<keywords>{_KEYWORD_NAMES})|"
    rf"(?P<other>{_OTHER_NAMES}))[^:：\n,;、，；]{{0,40}}?[\"'*_`\]}}>\s]*[:：】][\"'*_`]*",
    re.I,
)
_HEADING = re.compile(
    rf"\W*(?:(?P<synonyms>{_SYNONYM_NAMES})|(?P<keywords>{_KEYWORD_NAMES}))\W*", re.I
)
_FENCE = re.compile(r"^\s*```.*$", re.M)
_JSON = re.compile(r"[\[{]\s*(?:[\"'\[{]|\])")
_BULLET = re.compile(
    r"^\s*(?:[-+*\u2022\u00b7\u25aa\u25e6\u25cf\u2023\u2013\u2014]\s+|\u2022|"
    r"[(\uff08]?\d{1,2}\s*[.)\u3001\uff0e\uff09:]\s*|[a-h][.)]\s+)"
)
_INLINE_NUMBER = re.compile(r"(?:^|\s+)[(\uff08]?\d{1,2}[.)\uff09]\s+")
_SEPARATOR = re.compile(r"\s+(?=#\w)|\s*[,;|\uff0c\u3001\uff1b\t\u2022\u061b\u060c]\s*")
_EMPHASIS = re.compile(r"^(?P<mark>\*{1,3}|_{1,3}|`{1,3}|~~)(?P<inner>.+?)(?P=mark)")
_AND = re.compile(r"^(?:and|or|und|et|y|e|及|和)\s+", re.I)
_NONE = re.compile(
    r"\W*(?:none|n/?a|nil|null|no (?:keywords?|synonyms?|entities)[^,]*|无|無|なし)?\W*", re.I
)
_OPENER = re.compile(
    r"^\W*(?:sure|certainly|of course|ok(?:ay)?|here (?:is|are)|here's|the (?:key|following)|"
    r"based on|i (?:have|hope|am|can|think|extracted|would)|i'm|let me|these|this|please|note|hope|"
    r"from the|in the|to answer|thank|natürlich|gerne|voici|aquí)\b|"
    r"^\W*(?:好的|当然|以下|根据|希望|这些|はい|以上)",
    re.I,
)
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
    for section, name in _from_json(text) or _from_text(_FENCE.sub("", text)):
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
    return list(_walk(read_json(body, wanted=("keywords", "synonyms")).value, section))


def _walk(value: object, section: Section, depth: int = 0) -> Iterator[tuple[Section, str]]:
    if isinstance(value, str):
        if name := _clean(value):
            yield section, name
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
    labelled = any(_labels(line) or _HEADING.fullmatch(line) for line in lines if line)
    bulleted = any(_BULLET.match(line) for line in lines)
    section: Section = "other" if labelled else "keywords"
    found: list[tuple[Section, str]] = []
    for line in filter(None, lines):
        heading = _HEADING.fullmatch(line)
        if heading:
            section = _section(heading)
            continue
        labels = _labels(line)
        rest = line[: labels[0].start()] if labels else line
        is_item = bool(_BULLET.match(line))
        if not labels and not _is_prose(line) and (is_item or labelled or not bulleted):
            found += [(section, name) for name in _names(rest)]
        for label, following in zip(labels, [*labels[1:], None]):
            section = _section(label)
            body = line[label.end() : following.start() if following else None]
            found += [(section, name) for name in _names(body)]
    return found


def _labels(line: str) -> list[re.Match[str]]:
    return list(_LABEL.finditer(line))


def _section(match: re.Match[str]) -> Section:
    groups = match.groupdict()
    if groups.get("synonyms"):
        return "synonyms"
    return "keywords" if groups.get("keywords") else "other"


def _is_prose(line: str) -> bool:
    if _BULLET.match(line):
        return False
    words = len(line.split())
    if line.endswith((":", "：")) or (_OPENER.match(line) and words > 1):
        return True
    parts = _SEPARATOR.split(line)
    if _SENTENCE_END.search(line) and words >= 4 and len(parts) < 3:
        return True
    return max(len(part.split()) for part in parts) >= 9


def _names(text: str) -> Iterator[str]:
    bullet = _BULLET.match(text)
    body = text[bullet.end() :] if bullet else text
    pieces = _INLINE_NUMBER.split(body) if bullet else [body]
    for piece in pieces:
        if bullet:
            piece = _without_gloss(piece)
        for part in _split(piece):
            if name := _clean(part):
                yield name


def _without_gloss(item: str) -> str:
    """Cut the explanation from a list item such as ``**Euler**: a mathematician of Basel``."""
    bold = _EMPHASIS.match(item)
    if bold and re.match(r"\s*(?:[-:：–—(（]|$)", item[bold.end() :]):
        return bold["inner"]
    head, *gloss = re.split(r"\s[-–—]+\s|[:：]\s", item, maxsplit=1)
    return head if gloss and len(gloss[0].split()) >= 4 else item


def _split(text: str) -> Iterator[str]:
    parts = [part for part in _SEPARATOR.split(text) if part]
    if len(parts) == 1 and "\n" in text:
        parts = text.splitlines()
    for position, part in enumerate(parts):
        yield _AND.sub("", part) if position and position == len(parts) - 1 else part


def _clean(name: str) -> str:
    name = name.strip().strip("\u200b")
    while True:
        before = name
        name = _BULLET.sub("", name).strip()
        emphasis = _EMPHASIS.match(name)
        if emphasis and emphasis.end() == len(name):
            name = emphasis["inner"].strip()
        name = name.strip("\"'“”‘’「」『』«»` ").rstrip(".。;；!！:：").strip()
        if name[:1] + name[-1:] in ("[]", "()", "<>", "{}", "（）", "【】", "《》"):
            name = name[1:-1].strip()
        name = name.lstrip("[{").rstrip("]}").strip()
        name = re.sub(r"^#(?=\w)", "", name)
        if name == before:
            break
    if _NONE.fullmatch(name) or len(name) > _MAX_NAME or not re.search(r"\w", name):
        return ""
    return name
