"""The benchmark of indexing, on a corpus of a few passages."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import ingest
from benchmarks.zipf_triplets import StubEmbedding, zipf_corpus

FIGURES = {"index_vs_raw", "index_vs_raw_without_evidence", "index_s", "raw_s", "rows", "open_s"}


def test_the_corpus_is_seeded_and_has_hubs() -> None:
    sizes = {"n_passages": 200, "n_triplets": 1_000, "n_entities": 300, "largest_hub": 50}
    corpus = zipf_corpus(**sizes)
    assert corpus.nodes[7].text == zipf_corpus(**sizes).nodes[7].text
    assert corpus.triplets != zipf_corpus(**sizes, seed=8).triplets
    assert sum(map(len, corpus.triplets)) == 1_000
    degrees: dict[str, int] = {}
    for of_one in corpus.triplets:
        for subject, _, object in of_one:
            assert subject != object
            for end in (subject, object):
                degrees[end] = degrees.get(end, 0) + 1
    by_degree = sorted(degrees.values())
    assert by_degree[-1] > 30 > 5 >= by_degree[len(by_degree) // 2]
    for subject, predicate, object in corpus.triplets[7]:
        assert f"{subject} {predicate} {object}." in corpus.nodes[7].text


def test_texts_that_share_words_are_near() -> None:
    model = StubEmbedding()
    one, near, far = model.get_text_embedding_batch(["Euler met Kant", "euler met Hume", "a b c"])

    def cosine(left: list[float], right: list[float]) -> float:
        return sum(a * b for a, b in zip(left, right))

    assert cosine(one, one) == pytest.approx(1, abs=1e-5)
    assert cosine(one, near) > cosine(one, far) + 0.3


def test_raw_rows_are_those_of_the_index(tmp_path: Path) -> None:
    corpus = zipf_corpus(n_passages=20, n_triplets=60, n_entities=40, largest_hub=10)
    requests = ingest.requests_written(corpus, tmp_path)
    rows = [row for _, of_one in requests for row in of_one]
    relations = {triplet for of_one in corpus.triplets for triplet in of_one}
    entities = {end for triplet in relations for end in (triplet[0], triplet[2])}
    assert len(rows) == 20 + len(relations) + len(entities)
    assert ingest.write_raw(requests, str(tmp_path / "raw.db")) > 0


@pytest.mark.slow
def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "figures.json"
    ingest.main(["--passages", "60", "--repeats", "1", "--without-vgr", "--json", str(out)])
    figures = json.loads(out.read_text())
    assert figures.keys() >= FIGURES
    assert all(value > 0 for value in figures.values())
    assert "index_vs_raw" in capsys.readouterr().out


def test_vgr_that_cannot_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ingest.shutil, "which", lambda _: str(tmp_path / "no-such-uv"))
    assert ingest.vgr_python(None, tmp_path) is None
    assert "cannot be installed" in capsys.readouterr().out
    assert ingest.vgr_python(sys.executable, tmp_path) == sys.executable


def test_a_worker_that_dies_is_said(tmp_path: Path) -> None:
    corpus = zipf_corpus(n_passages=20, n_triplets=60, n_entities=40, largest_hub=10)
    worker = ingest.vgr(sys.executable, corpus, tmp_path)  # without that package
    with worker as process, pytest.raises(RuntimeError, match="ended with code 1"):
        ingest.ask(process, {"uri": "x.db", "documents": "documents.jsonl", "top_k": 5})
