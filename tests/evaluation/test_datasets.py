"""Loading data sets."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.evaluation import load_dataset

DATA = Path(os.environ.get("GRAPH_RAG_DATA", Path(__file__).parents[2].parent / "shared" / "data"))


def write(folder: Path, **files: Any) -> Path:
    for name, rows in files.items():
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    return folder


PASSAGES = [
    {"id": "a", "title": "Euler", "text": "A student."},
    {"id": "b", "title": "", "text": "No title."},
]
QUESTION = {"id": "q", "question": "Who?", "answer": "x", "gold_passage_ids": ["b"], "hops": 2}


def test_folder(tmp_path: Path) -> None:
    triplets = [{"passage_id": "b", "triplets": [["x", "y", "z"]]}]
    folder = write(tmp_path, passages=PASSAGES, questions=[QUESTION], triplets=triplets)
    dataset = load_dataset(str(folder))
    assert dataset.name == tmp_path.name
    assert [node.node_id for node in dataset.nodes] == ["a", "b"]
    assert [node.get_content() for node in dataset.nodes] == ["Euler\nA student.", "No title."]
    assert dataset.triplets == [[], [("x", "y", "z")]]
    assert dataset.questions == [("q", "Who?", "x", ("b",), 2, None)]


def test_triplets_are_optional(tmp_path: Path) -> None:
    assert load_dataset(write(tmp_path, passages=PASSAGES, questions=[QUESTION])).triplets == [
        [],
        [],
    ]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no data set at .*expected a folder"),
        ({"passages": PASSAGES}, r"questions.jsonl is missing"),
        (
            {"passages": PASSAGES, "questions": [{**QUESTION, "gold_passage_ids": ["c"]}]},
            "question 'q' .* 1 ids are not among the 2 passages, the first is 'c'",
        ),
        (
            {"passages": PASSAGES, "questions": [{**QUESTION, "gold_passage_ids": []}]},
            "question 'q' .* no gold passage",
        ),
        (
            {
                "passages": PASSAGES,
                "questions": [QUESTION],
                "triplets": [{"passage_id": "c", "triplets": []}],
            },
            "triplets of .* the first is 'c'",
        ),
        ({"passages": [*PASSAGES, "{"]}, r"passages.jsonl, line 3: not a JSON object"),
        ({"passages": ["[" * 100_000]}, r"passages.jsonl, line 1: not a JSON object"),
        ({"passages": [*PASSAGES, "null"]}, r"passages.jsonl, line 3: 'id' is missing"),
        ({"passages": [{"id": 1, "text": "a"}]}, r"line 1: 'id' is missing or no str"),
        (
            {"passages": PASSAGES, "questions": [{**QUESTION, "gold_passage_ids": "a"}]},
            r"questions.jsonl, line 1: 'gold_passage_ids' is missing or no list",
        ),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, files: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphRAGValueError, match=message):
        load_dataset(write(tmp_path, **files))


CORPUS = [
    {"title": "Basel", "text": "A city. On the Rhine."},
    {"title": "Basel", "text": "A problem."},
    {"title": "Rhine", "text": "A river."},
]


def save(folder: Path, name: str, corpus: Any, questions: Any) -> Path:
    (folder / f"{name}_corpus.json").write_text(json.dumps(corpus), encoding="utf-8")
    file = folder / f"{name}.json"
    file.write_text(json.dumps(questions), encoding="utf-8")
    return file


def test_musique(tmp_path: Path) -> None:
    paragraphs = [
        {"idx": 0, "title": "Basel", "paragraph_text": "A problem.", "is_supporting": True},
        {"idx": 1, "title": "Basel", "paragraph_text": CORPUS[0]["text"], "is_supporting": False},
        {"idx": 2, "title": "Rhine", "paragraph_text": "A river.", "is_supporting": True},
    ]
    row = {"id": "3hop1__1_2_3", "question": "Q?", "answer": "yes", "paragraphs": paragraphs}
    file = save(tmp_path, "musique", CORPUS, [row])
    for path in (file, tmp_path):
        dataset = load_dataset(path)
        assert dataset.name == "musique"
        assert dataset.nodes[0].get_content() == "Basel\nA city. On the Rhine."
        gold = ("musique-1", "musique-2")
        assert dataset.questions == [("3hop1__1_2_3", "Q?", "yes", gold, 3, None)]


@pytest.mark.parametrize("separator", ["", " "])
def test_hotpotqa_and_2wiki(tmp_path: Path, separator: str) -> None:
    context = [["Basel", ["A city.", " On the Rhine."]], ["Rhine", ["A river,", "revised."]]]
    row = {
        "_id": "5a7",
        "type": "bridge",
        "question": "Q?",
        "answer": "no",
        "context": [*context, ["Other", ["x"]]],
        "supporting_facts": [["Basel", 0], ["Basel", 1], ["Rhine", 0]],
    }
    corpus = [{"title": title, "text": separator.join(text)} for title, text in context[:1]]
    file = save(tmp_path, "hotpotqa", [*corpus, *CORPUS[1:]], [row])
    question = load_dataset(file).questions[0]
    # The Rhine's text differs, but no other passage has its title.
    assert question == ("5a7", "Q?", "no", ("hotpotqa-0", "hotpotqa-2"), None, "bridge")


def test_corpus_by_title(tmp_path: Path) -> None:
    row = {"id": 1, "question": "Q?", "paragraphs": [{"title": "Rhine", "text": "A river."}]}
    file = save(tmp_path, "old", {"Basel": ["A city."], "Rhine": ["A ", "river."]}, [row])
    assert load_dataset(file).questions == [("1", "Q?", "", ("old-1",), None, None)]


def test_gold_passage_not_in_the_corpus(tmp_path: Path) -> None:
    row = {"id": "1", "question": "Q?", "paragraphs": [{"title": "Basel", "text": "Else."}]}
    with pytest.raises(GraphRAGValueError, match="gold passage 'Basel' that is not in x_corpus"):
        load_dataset(save(tmp_path, "x", CORPUS, [row]))


@pytest.mark.skipif(not DATA.is_dir(), reason="needs the data sets: set GRAPH_RAG_DATA")
@pytest.mark.parametrize(
    ("name", "passages", "triplets"), [("musique", 1890, 17_234), ("hotpotqa", 994, 9_956)]
)
def test_real_data(name: str, passages: int, triplets: int) -> None:
    dataset = load_dataset(DATA / "multihop" / name)
    assert len(dataset.nodes) == passages
    assert sum(map(len, dataset.triplets)) == triplets
    assert len(dataset.questions) == 100
