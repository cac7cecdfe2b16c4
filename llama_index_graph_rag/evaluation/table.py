"""Reports as tables of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llama_index_graph_rag.evaluation.bootstrap import Interval
    from llama_index_graph_rag.evaluation.report import EvaluationReport


def report_table(report: EvaluationReport) -> str:
    """Return the metrics, their intervals, groups, latency and cost of one report."""
    rows = [["", "questions", *report.metric_names]]
    if report.baseline:
        baseline = report.baseline
        rows.append(_row(baseline, [f"{baseline.metrics[n].mean:.1f}" for n in rows[0][2:]]))
    rows.append(_row(report, [f"{metric.mean:.1f}" for metric in report.metrics.values()]))
    rows.append(["  95% interval", "", *map(_bounds, report.metrics.values())])
    if report.differences:
        means = [f"{difference.mean:+.1f}" for difference in report.differences.values()]
        rows.append(["difference", "", *means])
        rows.append(["  95% interval", "", *map(_bounds, report.differences.values())])
    for field, members in report.groups().items():
        for value, group in members.items():
            means = [f"{group[name]:.1f}" for name in report.metric_names]
            rows.append([f"{field} {value}", str(int(group["questions"])), *means])
    lines = [f"{report.dataset}: {len(report.results)} questions, percent", format_table(rows)]
    lines.append(f"milliseconds a query: {_pairs(report.latency(), '.1f')}")
    stages = report.stage_milliseconds()
    if stages:
        lines.append(f"by stage: {_pairs(stages, '.1f')}")
    for what, counts in (
        ("calls", report.calls_per_query()),
        ("tokens", report.tokens_per_query()),
    ):
        if counts:
            lines.append(f"{what} a query: {_pairs(counts, '.2f')}")
    return "\n".join([*lines, *(f"note: {note}" for note in report.notes())])


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Return `rows`, the first of them the header, in aligned columns.

    Examples
    --------
    >>> print(format_table([["", "R@5"], ["dense", "61.5"]]))
             R@5
    -----  -----
    dense   61.5
    """
    widths = [max(5, *(len(row[column]) for row in rows)) for column in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        )
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def _row(report: EvaluationReport, cells: list[str]) -> list[str]:
    return [report.retriever, str(len(report.results)), *cells]


def _bounds(interval: Interval) -> str:
    return f"{interval.low:.1f}..{interval.high:.1f}"


def _pairs(values: dict[str, float], spec: str) -> str:
    return ", ".join(f"{name} {value:{spec}}" for name, value in values.items())
