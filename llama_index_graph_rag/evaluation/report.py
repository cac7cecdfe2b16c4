"""The result of an evaluation, as numbers, table, JSON or plot."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.evaluation.bootstrap import Interval, bootstrap_intervals
from llama_index_graph_rag.evaluation.datasets import Question
from llama_index_graph_rag.evaluation.metrics import all_gold_at, recall_at, reciprocal_rank

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALL_GOLD_K = 5


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """What a retriever returned for one question, and what it cost.

    Attributes
    ----------
    question
        The question.
    retrieved
        Ids of the passages, best first, each once.
    milliseconds
        Wall time of the retrieval.
    calls, tokens, stages
        From the retrieval's trace (stages in milliseconds); None where the retriever gives none.
    """

    question: Question
    retrieved: tuple[str, ...]
    milliseconds: float
    calls: Counter[str] | None = None
    tokens: Counter[str] | None = None
    stages: dict[str, float] | None = None


@dataclass(frozen=True)
class EvaluationReport:
    """Metrics of a retriever over a data set.

    Recalls, all-gold and MRR are in percent, with 95% bootstrap intervals over the questions.

    Attributes
    ----------
    dataset, retriever
        Names.
    k
        The cut-offs of recall.
    results
        One a question, in the data set's order.
    unknown_ids
        Ids retrieved that are not those of passages of the data set, nor of chunks of them.
    baseline
        The report of another retriever on the same questions to compare with.
    """

    dataset: str
    retriever: str
    k: tuple[int, ...]
    results: list[QuestionResult]
    unknown_ids: int = 0
    baseline: EvaluationReport | None = None

    def __post_init__(self) -> None:
        if self.baseline and self.baseline.k != self.k:
            raise GraphRAGValueError(f"k={self.k}, but the baseline has k={self.baseline.k}")
        if self.baseline and self._questions() != self.baseline._questions():
            raise GraphRAGValueError(
                f"the baseline {self.baseline.retriever} answered other questions than "
                f"{self.retriever}: a paired comparison needs the same ones in the same order"
            )

    @property
    def metric_names(self) -> list[str]:
        """Names of the metrics, the columns of `values`."""
        return [*(f"R@{k}" for k in self.k), f"All@{ALL_GOLD_K}", "MRR"]

    @cached_property
    def values(self) -> NDArray[np.float64]:
        """Each question's metrics in percent, shape (questions, metrics)."""
        rows = []
        for result in self.results:
            retrieved, gold = result.retrieved, result.question.gold_passage_ids
            recalls = [recall_at(k, retrieved, gold) for k in self.k]
            complete = all_gold_at(ALL_GOLD_K, retrieved, gold)
            rows.append([*recalls, complete, reciprocal_rank(retrieved, gold)])
        return 100 * np.array(rows, np.float64)

    @cached_property
    def metrics(self) -> dict[str, Interval]:
        """Mean and interval of each metric."""
        return dict(zip(self.metric_names, bootstrap_intervals(self.values)))

    @cached_property
    def differences(self) -> dict[str, Interval]:
        """Paired difference to the baseline of each metric; empty without a baseline."""
        if self.baseline is None:
            return {}
        paired = self.values - self.baseline.values
        return dict(zip(self.metric_names, bootstrap_intervals(paired)))

    def groups(self) -> dict[str, dict[str, dict[str, float]]]:
        """Return the mean metrics by number of hops and by type of question.

        Returns
        -------
        dict
            ``{"hops": {"2": {"questions": 68, "R@1": ...}}, "type": {...}}``, without what the
            data set does not tell.
        """
        groups = {}
        for field in ("hops", "type"):
            rows: defaultdict[Hashable, list[int]] = defaultdict(list)
            for row, result in enumerate(self.results):
                value = getattr(result.question, field)
                if value is not None:
                    rows[value].append(row)
            if rows:
                groups[field] = {
                    str(value): {
                        "questions": len(members),
                        **dict(zip(self.metric_names, self.values[members].mean(axis=0).tolist())),
                    }
                    for value, members in sorted(rows.items(), key=lambda item: str(item[0]))
                }
        return groups

    def latency(self) -> dict[str, float]:
        """Return mean and percentiles of the wall time of a query, in milliseconds."""
        times = np.array([result.milliseconds for result in self.results])
        percentiles = np.percentile(times, [50, 90, 99])
        return {
            "mean": float(times.mean()),
            **dict(zip(("p50", "p90", "p99"), percentiles.tolist())),
        }

    def calls_per_query(self) -> dict[str, float]:
        """Return the mean number of calls of each kind, empty if no result has a trace."""
        return _mean_counts([result.calls for result in self.results])

    def tokens_per_query(self) -> dict[str, float]:
        """Return the mean number of tokens of each kind, empty if no result has a trace."""
        return _mean_counts([result.tokens for result in self.results])

    def stage_milliseconds(self) -> dict[str, float]:
        """Return the mean milliseconds of each stage, empty if no result has a trace."""
        return _mean_counts([result.stages for result in self.results])

    def notes(self) -> list[str]:
        """Return what a reader must know to read the numbers right."""
        notes = []
        short = sum(len(result.retrieved) < max(self.k) for result in self.results)
        if short:
            notes.append(
                f"{short} of {len(self.results)} questions got fewer than {max(self.k)} passages: "
                f"raise similarity_top_k for a fair R@{max(self.k)}"
            )
        if self.unknown_ids:
            notes.append(
                f"{self.unknown_ids} retrieved ids are not passages of {self.dataset}: "
                "index its nodes with their ids"
            )
        return notes

    def to_dict(self, *, with_questions: bool = True) -> dict[str, Any]:
        """Return the report as plain data, by default with each question's passages."""
        report: dict[str, Any] = {
            "dataset": self.dataset,
            "retriever": self.retriever,
            "questions": len(self.results),
            "metrics": {name: metric._asdict() for name, metric in self.metrics.items()},
            "groups": self.groups(),
            "latency_ms": self.latency(),
            "stage_ms": self.stage_milliseconds(),
            "calls_per_query": self.calls_per_query(),
            "tokens_per_query": self.tokens_per_query(),
            "notes": self.notes(),
        }
        if self.baseline:
            report["difference"] = {
                name: difference._asdict() for name, difference in self.differences.items()
            }
            report["baseline"] = self.baseline.to_dict(with_questions=with_questions)
        if with_questions:
            report["results"] = [
                {
                    "id": result.question.id,
                    "question": result.question.question,
                    "gold": list(result.question.gold_passage_ids),
                    "retrieved": list(result.retrieved),
                    "milliseconds": result.milliseconds,
                }
                for result in self.results
            ]
        return report

    def to_json(self, path: str | Path | None = None, *, with_questions: bool = True) -> str:
        """Return the report as JSON, and write it to `path` if one is given."""
        text = json.dumps(self.to_dict(with_questions=with_questions), ensure_ascii=False, indent=2)
        if path is not None:
            Path(path).write_text(text + "\n", encoding="utf-8")
        return text

    def to_table(self) -> str:
        """Return the report as a table of text."""
        from llama_index_graph_rag.evaluation.table import report_table

        return report_table(self)

    def plot(self, path: str | Path | None = None) -> Figure:
        """Return a bar chart of the metrics with their intervals, and save it to `path` if given.

        Raises
        ------
        MissingExtraError
            If matplotlib (extra ``plot``) is not installed.
        """
        from llama_index_graph_rag.evaluation.plot import plot_report

        figure = plot_report(self)
        if path is not None:
            figure.savefig(path)
        return figure

    def __str__(self) -> str:
        return self.to_table()

    def _questions(self) -> list[str]:
        return [result.question.id for result in self.results]


def _mean_counts(counts: Sequence[Mapping[str, float] | None]) -> dict[str, float]:
    known = [count for count in counts if count is not None]
    total: defaultdict[str, float] = defaultdict(float)
    for count in known:
        for kind, number in count.items():
            total[kind] += number
    return {kind: number / len(known) for kind, number in sorted(total.items())}
