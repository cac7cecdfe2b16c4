"""Measuring retrieval: data sets, metrics and reports."""

from llama_index_graph_rag.evaluation.bootstrap import Interval, bootstrap_intervals
from llama_index_graph_rag.evaluation.datasets import (
    Dataset,
    Question,
    load_dataset,
    passage_node,
)
from llama_index_graph_rag.evaluation.metrics import all_gold_at, recall_at, reciprocal_rank
from llama_index_graph_rag.evaluation.report import EvaluationReport, QuestionResult
from llama_index_graph_rag.evaluation.runner import aevaluate, evaluate

__all__ = [
    "Dataset",
    "EvaluationReport",
    "Interval",
    "Question",
    "QuestionResult",
    "aevaluate",
    "all_gold_at",
    "bootstrap_intervals",
    "evaluate",
    "load_dataset",
    "passage_node",
    "recall_at",
    "reciprocal_rank",
]
