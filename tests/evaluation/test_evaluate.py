"""Running retrievers over a data set, and the report."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import (
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)

from llama_index_graph_rag.errors import (
    GraphRAGTypeError,
    GraphRAGValueError,
    MissingExtraError,
)
from llama_index_graph_rag.evaluation import (
    Dataset,
    Question,
    aevaluate,
    all_gold_at,
    evaluate,
    passage_node,
    recall_at,
    reciprocal_rank,
)
from llama_index_graph_rag.trace import RetrievalTrace

IDS = list("abcdefgh")
DATASET = Dataset(
    "toy",
    [passage_node(id, id.upper(), "text") for id in IDS],
    [[] for _ in IDS],
    [
        Question("1", "ab", "", ("a", "b"), 2, "bridge"),
        Question("2", "abc", "", ("a", "b", "c"), 3, "bridge"),
        Question("3", "d", "", ("d",), None, "comparison"),
        Question("4", "gh", "", ("g", "h"), 2, None),
    ],
)


class Fixed(BaseRetriever):
    """Returns the same passages for each question."""

    def __init__(self, ids: str) -> None:
        super().__init__()
        self.nodes = [TextNode(id_=id, text=id) for id in ids]

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [NodeWithScore(node=node, score=1.0) for node in self.nodes]


class Traced(Fixed):
    """Has a trace with two searches and, for each letter of the question, a token."""

    def retrieve_with_trace(self, query: str) -> tuple[list[NodeWithScore], RetrievalTrace]:
        trace = RetrievalTrace(query)
        trace.calls.update({"store.search": 2, "llm": query == "d"})
        trace.tokens["prompt"] = len(query)
        trace.milliseconds["recall"] = 3.0 * len(query)
        return self.retrieve(query), trace

    async def aretrieve_with_trace(self, query: str) -> tuple[list[NodeWithScore], RetrievalTrace]:
        return self.retrieve_with_trace(query)


def means(report) -> dict[str, float]:
    return {name: round(metric.mean, 1) for name, metric in report.metrics.items()}


def test_metrics() -> None:
    report = evaluate(Fixed("axbdef"), DATASET, k=(1, 2, 5))
    # Recalls at 2: 1/2, 1/3, 0, 0. First gold at rank 1, 1, 4 and never.
    expected = {"R@1": 20.8, "R@2": 20.8, "R@5": 66.7, "All@5": 50.0, "MRR": 56.2}
    assert means(report) == expected
    for mean, low, high in report.metrics.values():
        assert 0 <= low <= mean <= high <= 100


@given(st.permutations(IDS), st.sets(st.sampled_from(IDS), min_size=1), st.integers(1, 9))
def test_metrics_against_a_count(retrieved: list[str], gold: set[str], k: int) -> None:
    found = [id for id in retrieved[:k] if id in gold]
    assert recall_at(k, retrieved, gold) == len(found) / len(gold)
    assert all_gold_at(k, retrieved, gold) == (len(found) == len(gold))
    assert reciprocal_rank(retrieved, gold) == 1 / (min(map(retrieved.index, gold)) + 1)


def test_groups() -> None:
    groups = evaluate(Fixed("axbdef"), DATASET, k=(2, 5)).groups()
    assert list(groups) == ["hops", "type"]
    assert list(groups["hops"]) == ["2", "3"]
    assert groups["hops"]["2"]["questions"] == 2
    assert groups["hops"]["2"]["R@5"] == 50
    assert groups["type"]["comparison"] == {
        "questions": 1,
        "R@2": 0,
        "R@5": 100,
        "All@5": 100,
        "MRR": 25,
    }


def test_difference_is_paired() -> None:
    ours, base = Fixed("abcdefgh"), Fixed("aefghbcd")
    report = evaluate(ours, DATASET, baseline=base, k=(5,))
    # Question by question: 100-50, 100-33, 100-0, 0-100.
    mean, low, high = report.differences["R@5"]
    assert mean == pytest.approx(29.17, abs=0.01)
    assert low < 0 < high
    again = evaluate(ours, DATASET, baseline=evaluate(base, DATASET, k=(1, 2)), k=(5,))
    assert again.differences == report.differences
    same = evaluate(base, DATASET, baseline=base, k=(5,)).differences
    assert set(same.values()) == {(0, 0, 0)}


def test_calls_and_tokens_from_the_trace() -> None:
    report = evaluate(Traced("ab"), DATASET)
    assert report.calls_per_query() == {"llm": 0.25, "store.search": 2}
    assert report.tokens_per_query() == {"prompt": 2}
    assert report.stage_milliseconds() == {"recall": 6}
    assert evaluate(Fixed("ab"), DATASET).calls_per_query() == {}


async def test_async_finds_the_same() -> None:
    for retriever in (Fixed("axbdef"), Traced("axbdef")):
        sync = evaluate(retriever, DATASET, baseline=Fixed("hg"))
        other = await aevaluate(retriever, DATASET, baseline=Fixed("hg"), workers=2)
        assert other.metrics == sync.metrics
        assert other.differences == sync.differences
        assert other.calls_per_query() == sync.calls_per_query()


def test_chunks_count_as_their_passage() -> None:
    retriever = Fixed("ab")
    retriever.nodes = [
        TextNode(
            id_=f"chunk{number}",
            text="x",
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=id)},
        )
        for number, id in enumerate("aab")
    ]
    report = evaluate(retriever, DATASET, k=(2,))
    assert report.results[0].retrieved == ("a", "b")
    assert report.unknown_ids == 0


def test_notes_say_what_spoils_the_numbers() -> None:
    report = evaluate(Fixed("abx"), DATASET)
    assert report.notes() == [
        "4 of 4 questions got fewer than 10 passages: raise similarity_top_k for a fair R@10",
        "4 retrieved ids are not passages of toy: index its nodes with their ids",
    ]
    assert evaluate(Fixed("ab"), DATASET, k=(1, 2)).notes() == []


def test_table() -> None:
    report = evaluate(Traced("axbdef"), DATASET, baseline=Fixed("aefghbcd"), name="ours", k=(1, 5))
    table = str(report)
    lines = table.splitlines()
    assert lines[0] == "toy: 4 questions, percent"
    assert lines[1].split() == ["questions", "R@1", "R@5", "All@5", "MRR"]
    assert lines[3].split()[:2] == ["Fixed", "4"]
    assert lines[4].split()[:4] == ["ours", "4", "20.8", "66.7"]
    assert lines[6].split()[0] == "difference"
    for part in ("hops 2", "type bridge", "p99", "recall 6.0", "llm 0.25", "prompt 2.00", "note: "):
        assert part in table


def test_json(tmp_path: Path) -> None:
    report = evaluate(Traced("axbdef"), DATASET, baseline=Fixed("ab"))
    file = tmp_path / "report.json"
    text = report.to_json(file)
    assert file.read_text(encoding="utf-8") == text + "\n"
    data = json.loads(text)
    assert data["questions"] == 4
    assert data["metrics"]["R@5"]["mean"] == pytest.approx(66.67, abs=0.01)
    assert set(data["difference"]["R@5"]) == {"mean", "low", "high"}
    assert data["results"][0]["retrieved"] == list("axbdef")
    assert data["latency_ms"]["p50"] <= data["latency_ms"]["p99"]
    assert "results" not in json.loads(report.to_json(with_questions=False))["baseline"]


def test_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="extra plot")
    report = evaluate(Fixed("axbdef"), DATASET, baseline=Fixed("ab"))
    figure = report.plot(tmp_path / "report.png")
    assert (tmp_path / "report.png").stat().st_size > 1000
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    assert heights == pytest.approx(
        [m.mean for r in (report.baseline, report) for m in r.metrics.values()]
    )


def test_plot_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"matplotlib is not .*\[plot\]"):
        evaluate(Fixed("ab"), DATASET).plot()


def test_bad_arguments() -> None:
    empty = Dataset("empty", DATASET.nodes, DATASET.triplets, [])
    with pytest.raises(GraphRAGValueError, match="empty has no questions"):
        evaluate(Fixed("ab"), empty)
    with pytest.raises(GraphRAGValueError, match=r"k=\(0, 5\)"):
        evaluate(Fixed("ab"), DATASET, k=(0, 5))
    with pytest.raises(GraphRAGValueError, match=r"k=\(2.5,\)"):
        evaluate(Fixed("ab"), DATASET, k=(2.5,))
    goldless = [DATASET.questions[0]._replace(gold_passage_ids=())]
    with pytest.raises(GraphRAGValueError, match="has no gold passage"):
        evaluate(Fixed("ab"), Dataset("toy", DATASET.nodes, DATASET.triplets, goldless))
    with pytest.raises(GraphRAGTypeError, match=r"write k=\(5,\)"):
        evaluate(Fixed("ab"), DATASET, k=5)
    fewer = Dataset("toy", DATASET.nodes, DATASET.triplets, DATASET.questions[:2])
    with pytest.raises(GraphRAGValueError, match="the baseline Fixed answered other questions"):
        evaluate(Fixed("ab"), DATASET, baseline=evaluate(Fixed("ab"), fewer))
