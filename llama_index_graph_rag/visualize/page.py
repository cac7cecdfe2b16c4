"""One page that holds all of an explanation: no network, and no text can become code."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from string import Template

from llama_index_graph_rag.visualize.branch import Branch
from llama_index_graph_rag.visualize.picture import Picture

EXCERPT = 420
"""Letters of a passage that are shown before one asks for the rest."""
HEIGHT = 640
"""Pixels of the frame in a notebook."""


@dataclass(frozen=True, slots=True)
class ShownPassage:
    """A result on the page: its title, score, text, what brought it, and its relations."""

    title: str
    text: str
    score: float | None
    how: str
    relations: Sequence[tuple[str, str]]
    """Id and text of each."""


def page(
    story: Branch,
    drawing: Picture,
    passages: Sequence[ShownPassage],
    roles: Mapping[str, str],
    *,
    beyond: int = 0,
) -> str:
    """Return the HTML of an explanation.

    Parameters
    ----------
    story
        The tree; its text is the heading.
    drawing
        What is drawn.
    passages
        The results beside it.
    roles
        What the legend says of each role of a relation.
    beyond
        Relations that are not drawn.

    Notes
    -----
    Script and style are allowed by their hashes alone, data are JSON in which no markup can
    begin, and everything else is escaped.
    """
    style, script = _asset("page.css"), _asset("page.js")
    shown = {relation["role"] for relation in drawing["relations"]}
    data = {**drawing, "roles": {role: said for role, said in roles.items() if role in shown}}
    return Template(_asset("page.html")).substitute(
        policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}",
        title=escape(story.text),
        style=style,
        script=script,
        data=_inert(data),
        passages="\n".join(_passage(place, one) for place, one in enumerate(passages, start=1))
        or '<p class="none">Nothing was returned.</p>',
        story="\n".join(_part(part) for part in story.branches),
        beyond=f"{beyond:,} more relations were reached and are not drawn." if beyond else "",
    )


def frame(html: str, fallback: str) -> str:
    """Return a page as it stands in a notebook; where frames are removed the text remains."""
    return (
        f'<iframe sandbox="allow-scripts" width="100%" height="{HEIGHT}" '
        f'style="border:1px solid #8884" srcdoc="{escape(html)}"></iframe>'
        f"<details><summary>As text</summary><pre>{escape(fallback)}</pre></details>"
    )


def _asset(name: str) -> str:
    return (resources.files("llama_index_graph_rag.visualize") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _inert(data: object) -> str:
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _passage(place: int, passage: ShownPassage) -> str:
    score = "" if passage.score is None else f"{passage.score:.3f}"
    about = " · ".join(part for part in (score, passage.how) if part)
    text, rest = passage.text[:EXCERPT], passage.text[EXCERPT:]
    if rest:
        cut = len(text) - len(text.rpartition(" ")[2])
        text, rest = (text[:cut], text[cut:] + rest) if cut > EXCERPT // 2 else (text, rest)
    body = f"<p>{escape(text)}{'…' if rest else ''}</p>"
    if rest:
        body += f"<details><summary>the rest</summary><p>{escape(rest)}</p></details>"
    relations = "".join(
        f'<li><button type="button" data-id="{escape(id)}">{escape(said)}</button></li>'
        for id, said in passage.relations
    )
    return (
        f'<article tabindex="0" data-ids="{escape(" ".join(id for id, _ in passage.relations))}">'
        f"<h3><span>{place}</span> {escape(passage.title)}</h3>"
        f'<p class="about">{escape(about)}</p>{body}'
        f"{f'<ul>{relations}</ul>' if relations else ''}</article>"
    )


def _part(part: Branch) -> str:
    inside = "".join(_line(line) for line in part.branches)
    return f"<details open><summary>{escape(part.text)}</summary><ul>{inside}</ul></details>"


def _line(line: Branch) -> str:
    inside = "".join(_line(below) for below in line.branches)
    return f"<li>{escape(line.text)}{f'<ul>{inside}</ul>' if inside else ''}</li>"
