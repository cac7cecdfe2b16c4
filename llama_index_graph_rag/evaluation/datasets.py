"""Multi-hop data sets: passages, their triplets, and questions with their gold passages."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from llama_index.core.schema import TextNode

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.triplets import Triplet, as_triplet


class Question(NamedTuple):
    """A question with its answer and the ids of the passages that it takes to answer it.

    `hops` and `type` are None where the data set does not tell.
    """

    id: str
    question: str
    answer: str
    gold_passage_ids: tuple[str, ...]
    hops: int | None = None
    type: str | None = None


@dataclass(frozen=True, slots=True)
class Dataset:
    """Questions over a pool of passages.

    Attributes
    ----------
    name
        The data set's name.
    nodes
        The passages. A node's text is its title, a line break, and the passage; the title is in
        its metadata too, out of what is embedded or shown to an LLM.
    triplets
        `triplets[i]` are those of `nodes[i]`; all empty where the data set has none.
    questions
        The questions.
    """

    name: str
    nodes: list[TextNode]
    triplets: list[list[Triplet]]
    questions: list[Question]


def load_dataset(path: str | Path) -> Dataset:
    """Load a data set from a folder or from the files that HippoRAG [1]_ made customary.

    Parameters
    ----------
    path
        Either a folder with ``passages.jsonl`` (id, title, text), ``questions.jsonl`` (id,
        question, answer, gold_passage_ids, and hops or type where known) and, optionally,
        ``triplets.jsonl`` (passage_id, triplets); or a file ``NAME.json`` of questions of
        MuSiQue, 2WikiMultiHopQA or HotpotQA beside ``NAME_corpus.json`` (title, text), or a
        folder that holds one such pair.

    Raises
    ------
    GraphRAGValueError
        If there is no data set, or a gold passage is not among the passages.

    References
    ----------
    .. [1] B. J. Gutiérrez et al., "From RAG to Memory", ICML 2025.

    Examples
    --------
    >>> load_dataset("nowhere")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    llama_index_graph_rag.errors.GraphRAGValueError: no data set at nowhere: expected ...
    """
    path = Path(path)
    if (path / "passages.jsonl").is_file():
        return _load_folder(path)
    corpora = list(path.glob("*_corpus.json")) if path.is_dir() else []
    if len(corpora) == 1:
        path = path / (corpora[0].stem.removesuffix("_corpus") + ".json")
    corpus = path.with_name(f"{path.stem}_corpus.json")
    if path.is_file() and corpus.is_file():
        return _load_questions_and_corpus(path, corpus)
    raise GraphRAGValueError(
        f"no data set at {path}: expected a folder with passages.jsonl and questions.jsonl, "
        "or a file NAME.json beside NAME_corpus.json"
    )


def passage_node(id: str, title: str, text: str) -> TextNode:
    """Return a passage as a node with the given id, its title on the first line of its text.

    Examples
    --------
    >>> passage_node("p", "Basel", "A city on the Rhine.").get_content().splitlines()
    ['Basel', 'A city on the Rhine.']
    """
    return TextNode(
        id_=id,
        text=f"{title}\n{text}" if title else text,
        metadata={"title": title},
        excluded_embed_metadata_keys=["title"],
        excluded_llm_metadata_keys=["title"],
    )


def _load_folder(folder: Path) -> Dataset:
    nodes = [
        passage_node(row["id"], row.get("title", ""), row["text"])
        for row in _rows(folder / "passages.jsonl", id=str, text=str)
    ]
    file = folder / "triplets.jsonl"
    triplets = {
        row["passage_id"]: [as_triplet(triplet) for triplet in row["triplets"]]
        for row in (_rows(file, passage_id=str, triplets=list) if file.is_file() else ())
    }
    questions = [
        Question(
            row["id"],
            row["question"],
            row.get("answer", ""),
            tuple(row["gold_passage_ids"]),
            row.get("hops"),
            row.get("type"),
        )
        for row in _rows(folder / "questions.jsonl", id=str, question=str, gold_passage_ids=list)
    ]
    return _dataset(folder.resolve().name, nodes, triplets, questions)


def _load_questions_and_corpus(file: Path, corpus_file: Path) -> Dataset:
    corpus: Any = json.loads(corpus_file.read_text(encoding="utf-8"))
    if isinstance(corpus, dict):  # HippoRAG's first release: title -> sentences
        corpus = [{"title": title, "text": "".join(text)} for title, text in corpus.items()]
    name = file.stem
    nodes = [
        passage_node(f"{name}-{number}", row["title"], row["text"])
        for number, row in enumerate(corpus)
    ]
    by_content: dict[str, str] = {}
    by_title: dict[str, list[str]] = {}
    for node, row in zip(nodes, corpus):
        by_content.setdefault(_content_key(row["title"], row["text"]), node.node_id)
        by_title.setdefault(row["title"], []).append(node.node_id)

    def passage_id(title: str, text: str) -> str:
        found = by_content.get(_content_key(title, text))
        same_title = by_title.get(title, [])
        if found is None and len(same_title) == 1:
            found = same_title[0]  # the text was edited; the title leaves no doubt
        if found is None:
            raise GraphRAGValueError(
                f"{file} has a gold passage {title!r} that is not in {corpus_file.name}: "
                "use the two files of one release"
            )
        return found

    questions = []
    for row in json.loads(file.read_text(encoding="utf-8")):
        id = str(row["_id"] if "_id" in row else row["id"])
        hops = re.match(r"(\d)hop", id)  # MuSiQue has the number of hops in the id
        gold = dict.fromkeys(passage_id(title, text) for title, text in _gold(row))
        questions.append(
            Question(
                id,
                row["question"],
                str(row.get("answer", "")),
                tuple(gold),
                int(hops[1]) if hops else None,
                row.get("type"),
            )
        )
    return _dataset(name, nodes, {}, questions)


def _gold(row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield title and text of the gold passages of a question."""
    if "paragraphs" in row:  # MuSiQue
        for paragraph in row["paragraphs"]:
            if paragraph.get("is_supporting", True):
                text = paragraph.get("paragraph_text", paragraph.get("text"))
                yield paragraph["title"], text
    else:  # HotpotQA, 2WikiMultiHopQA
        titles = {title for title, _ in row["supporting_facts"]}
        for title, sentences in row["context"]:
            if title in titles:
                yield title, "".join(sentences)


def _content_key(title: str, text: str) -> str:
    # Without white space: the releases differ in how they join sentences.
    return "".join(f"{title}{text}".split())


def _dataset(
    name: str,
    nodes: list[TextNode],
    triplets: dict[str, list[Triplet]],
    questions: Sequence[Question],
) -> Dataset:
    known = {node.node_id for node in nodes}
    _check_known(f"triplets of {name}", triplets, known)
    for question in questions:
        _check_known(f"question {question.id!r} of {name}", question.gold_passage_ids, known)
        if not question.gold_passage_ids:
            raise GraphRAGValueError(
                f"question {question.id!r} of {name} has no gold passage: leave it out"
            )
    return Dataset(name, nodes, [triplets.get(node.node_id, []) for node in nodes], list(questions))


def _check_known(what: str, ids: Iterable[str], known: set[str]) -> None:
    unknown = [id for id in ids if id not in known]
    if unknown:
        raise GraphRAGValueError(
            f"{what}: {len(unknown)} ids are not among the {len(known)} passages, "
            f"the first is {unknown[0]!r}"
        )


def _rows(file: Path, **fields: type) -> Iterator[dict[str, Any]]:
    if not file.is_file():
        raise GraphRAGValueError(f"{file} is missing: a data set folder needs it")
    # Of bytes: a wrong encoding is then told with its line, like any other fault.
    for number, line in enumerate(file.read_bytes().removeprefix(BOM_UTF8).split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise GraphRAGValueError(
                f"{file}, line {number}: not a JSON object ({error})"
            ) from error
        for field, kind in fields.items():
            if not isinstance(row, dict) or not isinstance(row.get(field), kind):
                raise GraphRAGValueError(
                    f"{file}, line {number}: {field!r} is missing or no {kind.__name__}"
                )
        yield row
