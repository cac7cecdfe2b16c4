"""Reports as bar charts (extra ``plot``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from llama_index_graph_rag.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from llama_index_graph_rag.evaluation.report import EvaluationReport


def plot_report(report: EvaluationReport) -> Figure:
    """Return the metrics with their 95% intervals as bars, beside those of the baseline.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot") from error
    reports = [report.baseline, report] if report.baseline else [report]
    names = report.metric_names
    figure = Figure(figsize=(1.5 + 1.1 * len(names), 4), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(names))
    width = 0.8 / len(reports)
    for number, shown in enumerate(reports):
        mean, low, high = np.array([shown.metrics[name] for name in names]).T
        axes.bar(
            places + (number - (len(reports) - 1) / 2) * width,
            mean,
            width,
            yerr=np.maximum([mean - low, high - mean], 0),
            capsize=3,
            label=shown.retriever,
        )
    axes.set_xticks(places, names)
    axes.set_ylim(0, 105)
    axes.set_ylabel("percent")
    axes.set_title(f"{report.dataset}, {len(report.results)} questions, 95% intervals")
    axes.legend()
    return figure
