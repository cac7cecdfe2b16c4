"""Trees, layouts and pages; a page is also opened in Chromium where there is one."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.schema import TextNode

from llama_index_graph_rag.explanation import Explanation
from llama_index_graph_rag.query_state import GraphRAGTrace, TracedResult
from llama_index_graph_rag.trace import (
    GraphNodeWithScore,
    RelationUse,
    RetrievalTrace,
    TracedHit,
    TracedRelation,
)
from llama_index_graph_rag.visualize.branch import Branch, branch
from llama_index_graph_rag.visualize.layout import ROW, layout
from llama_index_graph_rag.visualize.page import frame
from llama_index_graph_rag.visualize.picture import picture

BREAK = "document.title='broken'"
EVIL = f'</script><script>{BREAK}</script><img src=x onerror="{BREAK}">'


def relation(place, subject, predicate, object, role="expanded", **more):
    return TracedRelation(
        f"r{place}", f"id {subject}", subject, predicate, f"id {object}", object, role, **more
    )


def explanation_of(relations, *, question="Who taught Euler?", text="Bernoulli taught Euler."):
    use = RelationUse(relations[0].id, relations[0].text, 0.5)
    trace = GraphRAGTrace(
        question,
        subgraph=relations,
        entities=[TracedHit(relations[0].subject_id, relations[0].subject, 0.9)],
        results=[TracedResult("p", 1.0, "chosen", (use,))],
        chosen=[TracedHit(relations[0].id, relations[0].text, 0.5)],
        candidates=[TracedHit(one.id, one.text, 0.5) for one in relations],
        reasoning=text,
    )
    node = GraphNodeWithScore(node=TextNode(id_="p", text=text), score=1.0, relations=(use,))
    return Explanation.from_trace([node], trace)


def five(**options):
    return explanation_of(
        [
            relation(0, "Bernoulli", "was the teacher of", "Euler", "chosen", degree=0),
            relation(1, "Euler", "was a student of", "Bernoulli", "used", similarity=0.5),
            relation(2, "Euler", "was born in", "Basel", "recalled"),
            relation(3, "Bernoulli", "was born in", "Basel"),
            relation(4, "Euler", "wrote to", "Euler"),
        ],
        **options,
    )


def many(n=300):
    rng = random.Random(0)
    ends = [(rng.randrange(max(1, i // 4 + 1)), i + 1) for i in range(n)]
    roles = ["chosen"] * 3 + ["used"] * 9 + ["recalled"] * 40
    return explanation_of(
        [
            relation(i, f"entity number {a}", f"is linked in {i}", f"entity number {b}", role)
            for i, ((a, b), role) in enumerate(zip(ends, roles + ["expanded"] * n))
        ]
    )


class Tags(HTMLParser):
    """The elements of a page, with their attributes and the text of scripts and styles."""

    def __init__(self, html):
        super().__init__()
        self.tags = []
        self.inside = {}
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        tag = self.cdata_elem  # inside a script or style
        if tag:
            key = (tag, sum(one == tag for one, _ in self.tags))
            self.inside[key] = self.inside.get(key, "") + data


# --- the tree -------------------------------------------------------------------------------------


def test_long_lines_are_wrapped_under_their_branch() -> None:
    text = str(branch("q", [branch("word " * 30, ["below"]), Branch("end " * 30)]))
    assert text.splitlines() == [
        "q",
        "├─ " + "word " * 19 + "word",
        "│  │ " + "word " * 9 + "word",
        "│  └─ below",
        "└─ " + "end " * 24 + "end",
        "   " + "end " * 4 + "end",
    ]


# --- the layout -----------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 25).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=40),
        )
    )
)
def test_any_graph_finds_its_places(graph) -> None:
    n, edges = graph
    widths, lengths = [50.0] * n, [80.0] * len(edges)
    places = layout(widths, edges, lengths)
    assert places.shape == (n, 2)
    assert np.isfinite(places).all()
    assert (places >= 0).all()
    assert (layout(widths, edges, lengths) == places).all()


def overlaps(places, width):
    near = np.abs(places[:, None] - places[None, :]) < np.array([width, ROW]) - 1
    return int(np.triu(near.all(axis=2), 1).sum())


def test_labels_find_room() -> None:
    star = [(0, i) for i in range(1, 60)]
    chain = [(i, i + 1) for i in range(60, 90)]
    places = layout([90.0] * 91, star + chain, [80.0] * len(star + chain))
    assert overlaps(places, 90.0) <= 10  # of 4,095 pairs


def test_edges_are_about_as_long_as_they_should_be() -> None:
    places = layout([20.0] * 4, [(0, 1), (1, 2), (2, 3)], [100.0, 200.0, 100.0])
    steps = np.hypot(*np.diff(places, axis=0).T)
    assert steps == pytest.approx([100, 200, 100], rel=0.35)  # wider than high
    assert places[0, 0] < places[3, 0]  # what comes first stands to the left


def test_nothing_at_all_is_a_picture() -> None:
    assert layout([], [], []).shape == (0, 2)
    assert picture([], []) == {"entities": [], "relations": []}
    page = Explanation.from_trace([], RetrievalTrace("Who?")).to_html()
    assert "Nothing was returned." in page


# --- the page -------------------------------------------------------------------------------------


def test_the_page_holds_the_graph_the_passages_and_the_story() -> None:
    page = five().to_html()
    data = json.loads(Tags(page).inside["script", 1])
    assert [(one["name"], one["seed"]) for one in data["entities"]] == [
        ("Bernoulli", 0.9),
        ("Euler", None),
        ("Basel", None),
    ]
    assert [(r["source"], r["predicate"], r["target"]) for r in data["relations"]][:2] == [
        (0, "was the teacher of", 1),
        (1, "was a student of", 0),
    ]
    assert list(data["roles"]) == ["chosen", "used", "recalled", "expanded"]
    assert "Bernoulli taught Euler." in page
    assert "Chosen by the LLM, 1 of 5" in page


def test_no_text_becomes_markup() -> None:
    harmless, evil = Tags(five().to_html()), Tags(five(question=EVIL, text=EVIL).to_html())
    assert [tag for tag, _ in evil.tags] == [tag for tag, _ in harmless.tags]
    named = explanation_of([relation(EVIL, EVIL, EVIL, EVIL, "chosen")])
    tags = Tags(named.to_html())
    assert {tag for tag, _ in tags.tags}.isdisjoint({"img"})
    assert sum(tag == "script" for tag, _ in tags.tags) == 2
    data = json.loads(tags.inside["script", 1])
    assert data["relations"][0]["predicate"] == EVIL
    assert [d["data-id"] for tag, d in tags.tags if "data-id" in d] == [f"r{EVIL}"]
    assert EVIL not in named._repr_html_()


def test_only_our_script_and_style_may_run_and_nothing_is_loaded() -> None:
    page = five().to_html()
    tags = Tags(page)
    (policy,) = (d["content"] for _, d in tags.tags if d.get("http-equiv"))
    assert policy.startswith("default-src 'none'; ")
    for key in (("style", 1), ("script", 2)):
        digest = base64.b64encode(hashlib.sha256(tags.inside[key].encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert not any(d.keys() & {"src", "href", "style", "onclick"} for _, d in tags.tags)
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}


def test_a_notebook_shows_the_page_in_a_frame_and_the_text_below() -> None:
    page = five(text=EVIL)
    shown = Tags(page._repr_html_())
    (attributes,) = (d for tag, d in shown.tags if tag == "iframe")
    assert attributes["srcdoc"] == page.to_html()
    assert attributes["sandbox"] == "allow-scripts"
    assert [tag for tag, _ in Tags(frame("<p>", "<b>")).tags] == [
        "iframe",
        "details",
        "summary",
        "pre",
    ]


def test_save_html_writes_one_file(tmp_path) -> None:
    explanation = five(text="A lone surrogate: \ud800.")
    path = explanation.save_html(tmp_path / "why.html")
    assert path == tmp_path / "why.html"
    assert "A lone surrogate: ?." in path.read_text(encoding="utf-8")
    with pytest.raises(FileNotFoundError):
        explanation.save_html(tmp_path / "missing" / "why.html")


# --- in a browser ---------------------------------------------------------------------------------

BROWSER = next(
    filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), ""
)
needs_browser = pytest.mark.skipif(not BROWSER, reason="needs Chromium on the PATH")


def opened(page, tmp_path):
    """The document as it stands after its script ran, and what the browser complained of."""
    flags = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-sync", "--disable-background-networking", "--disable-component-update"),
        *("--enable-logging=stderr", "--window-size=1400,850", "--dump-dom"),
    ]
    file = tmp_path / "page.html"
    file.write_text(page, encoding="utf-8")
    done = subprocess.run(
        [BROWSER, *flags, f"--user-data-dir={tmp_path / 'profile'}", file.as_uri()],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def labels(dom):
    """The boxes of the labels that are shown: left, top, right, bottom."""
    boxes = []
    for where, width in re.findall(r'<g class="tag [^"]*"([^>]*)><rect [^>]*width="([\d.]+)"', dom):
        if "none" not in where:
            x, y = map(float, re.search(r"translate\(([-\d.]+),([-\d.]+)\)", where).groups())
            boxes.append((x - float(width) / 2, y - 10, x + float(width) / 2, y + 3))
    return boxes


@needs_browser
@pytest.mark.parametrize(("make", "least"), [(five, 7), (many, 60)])
def test_chromium_draws_it(make, least, tmp_path) -> None:
    explanation = make()
    dom, complaints = opened(explanation.to_html(), tmp_path)
    assert complaints == []
    relations = explanation.trace.subgraph
    assert len(re.findall(r'<path class="grip"[^>]* d="M', dom)) == len(relations)
    assert "NaN" not in dom.partition("<script")[0]
    boxes = labels(dom)
    assert len(boxes) >= least
    for place, (a, b, c, d) in enumerate(boxes):
        assert all(a >= g or c <= e or b >= h or d <= f for e, f, g, h in boxes[place + 1 :]), (
            "two labels overlap"
        )


@needs_browser
def test_chromium_runs_no_text(tmp_path) -> None:
    evil = [relation(EVIL, EVIL, EVIL, EVIL + "2", "chosen")]
    dom, complaints = opened(explanation_of(evil, question="Who?", text=EVIL).to_html(), tmp_path)
    assert "<title>Who?</title>" in dom
    assert "<img" not in dom
    assert complaints == []
