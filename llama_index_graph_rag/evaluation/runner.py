"""Running a retriever over a data set."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from llama_index.core.async_utils import run_jobs
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import BaseNode, NodeWithScore
from llama_index.core.utils import get_tqdm_iterable

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError
from llama_index_graph_rag.evaluation.datasets import Dataset, Question
from llama_index_graph_rag.evaluation.report import EvaluationReport, QuestionResult
from llama_index_graph_rag.trace import RetrievalTrace

DEFAULT_K = (1, 2, 5, 10)

Retrieved = tuple[list[NodeWithScore], RetrievalTrace]


def evaluate(
    retriever: BaseRetriever,
    dataset: Dataset,
    *,
    baseline: BaseRetriever | EvaluationReport | None = None,
    k: Sequence[int] = DEFAULT_K,
    name: str | None = None,
    show_progress: bool = False,
) -> EvaluationReport:
    """Run a retriever over the questions of a data set and measure what it found.

    Parameters
    ----------
    retriever
        Any LlamaIndex retriever over the passages of `dataset`. Its nodes are told by their id,
        or by their `ref_doc_id` if they are chunks of passages. Its calls and tokens are counted
        if it has a method ``retrieve_with_trace(question) -> (nodes, RetrievalTrace)``.
    dataset
        From `load_dataset`.
    baseline
        Another retriever, or its report on the same questions, to compare with.
    k
        Cut-offs of recall, default 1, 2, 5 and 10.
    name
        The retriever's name in the report, by default its class.
    show_progress
        Whether to show a progress bar, default False.

    Raises
    ------
    GraphRAGValueError
        If the data set has no question, or `k` is empty or holds a number below 1.

    Examples
    --------
    >>> from llama_index.core import MockEmbedding, VectorStoreIndex
    >>> from llama_index_graph_rag.demo import load_demo
    >>> demo = load_demo()
    >>> index = VectorStoreIndex(demo.nodes, embed_model=MockEmbedding(8))
    >>> report = evaluate(index.as_retriever(similarity_top_k=24), demo, k=(24,))
    >>> report.metrics["R@24"].mean
    100.0
    """
    k = _checked(dataset, k)
    if isinstance(baseline, BaseRetriever):
        baseline = evaluate(baseline, dataset, k=k, show_progress=show_progress)
    traced: Callable[[str], Retrieved] | None = getattr(retriever, "retrieve_with_trace", None)
    name = name or type(retriever).__name__
    records = []
    for question in get_tqdm_iterable(dataset.questions, show_progress, f"Evaluating {name}"):
        start = time.perf_counter()
        trace: RetrievalTrace | None = None
        if traced:
            nodes, trace = traced(question.question)
        else:
            nodes = retriever.retrieve(question.question)
        records.append((question, nodes, trace, (time.perf_counter() - start) * 1000))
    return _report(name, dataset, k, records, baseline)


async def aevaluate(
    retriever: BaseRetriever,
    dataset: Dataset,
    *,
    baseline: BaseRetriever | EvaluationReport | None = None,
    k: Sequence[int] = DEFAULT_K,
    name: str | None = None,
    workers: int = 4,
    show_progress: bool = False,
) -> EvaluationReport:
    """Do what `evaluate` does with `workers` (default 4) questions at the same time.

    Latencies are those under that load. Uses ``aretrieve_with_trace`` where there is one.
    """
    k = _checked(dataset, k)
    if isinstance(baseline, BaseRetriever):
        baseline = await aevaluate(
            baseline, dataset, k=k, workers=workers, show_progress=show_progress
        )
    traced: Callable[[str], Awaitable[Retrieved]] | None = getattr(
        retriever, "aretrieve_with_trace", None
    )

    async def run(question: Question) -> _Record:
        start = time.perf_counter()
        trace: RetrievalTrace | None = None
        if traced:
            nodes, trace = await traced(question.question)
        else:
            nodes = await retriever.aretrieve(question.question)
        return question, nodes, trace, (time.perf_counter() - start) * 1000

    name = name or type(retriever).__name__
    records: list[_Record] = await run_jobs(
        [run(question) for question in dataset.questions],
        show_progress=show_progress,
        workers=workers,
        desc=f"Evaluating {name}",
    )
    return _report(name, dataset, k, records, baseline)


_Record = tuple[Question, list[NodeWithScore], RetrievalTrace | None, float]


def _checked(dataset: Dataset, k: Sequence[int]) -> tuple[int, ...]:
    if not dataset.questions:
        raise GraphRAGValueError(f"{dataset.name} has no questions: there is nothing to measure")
    if isinstance(k, int):
        raise GraphRAGTypeError(f"k is a sequence of cut-offs, got {k}: write k=({k},)")
    for question in dataset.questions:
        if not question.gold_passage_ids:
            raise GraphRAGValueError(
                f"question {question.id!r} of {dataset.name} has no gold passage: leave it out"
            )
    if not k or not all(isinstance(cut, int) and cut >= 1 for cut in k):
        raise GraphRAGValueError(f"k={tuple(k)}: give at least one cut-off, each 1 or more")
    return tuple(k)


def _report(
    name: str,
    dataset: Dataset,
    k: tuple[int, ...],
    records: Sequence[_Record],
    baseline: EvaluationReport | None,
) -> EvaluationReport:
    known = {node.node_id for node in dataset.nodes}
    results, unknown = [], 0
    for question, nodes, trace, milliseconds in records:
        ids = tuple(dict.fromkeys(_passage_id(node.node, known) for node in nodes))
        unknown += sum(id not in known for id in ids)
        result = QuestionResult(question, ids, milliseconds)
        if trace:
            result = replace(
                result,
                calls=Counter(trace.calls),
                tokens=Counter(trace.tokens),
                stages=dict(trace.milliseconds),
            )
        results.append(result)
    if baseline:
        baseline = replace(baseline, k=k)
    return EvaluationReport(dataset.name, name, k, results, unknown, baseline)


def _passage_id(node: BaseNode, known: set[str]) -> str:
    """Return the id of the passage that `node` is, or is a chunk of."""
    if node.node_id not in known and node.ref_doc_id in known:
        return str(node.ref_doc_id)
    return node.node_id
