"""The corpus that ships with the package, and plain retrieval beside the graph's on it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.evaluation.datasets import Dataset, load_dataset
from llama_index_graph_rag.identity import clean_text

if TYPE_CHECKING:
    from llama_index.core import VectorStoreIndex
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.llms import LLM
    from llama_index.core.schema import NodeWithScore

    from llama_index_graph_rag.index import GraphRAGIndex

CONNECTION = ("Joseph Fourier", "Johann Bernoulli")
"""Two names that no passage of the corpus holds together; three passages connect them."""


def load_demo() -> Dataset:
    """Return the demo corpus: passages, their triplets, and five multi-hop questions.

    Examples
    --------
    >>> demo = load_demo()
    >>> demo.nodes[0].metadata["title"], demo.triplets[0][1].text
    ('Leonhard Euler', 'Leonhard Euler was a student of Johann Bernoulli')
    >>> demo.questions[0].question
    "What contribution did the son of Euler's teacher make?"
    """
    folder = resources.files("llama_index_graph_rag.data") / "bernoulli"
    with resources.as_file(folder) as path:
        return load_dataset(path)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What plain vector retrieval and the graph found for one question, best first.

    `relations` are those that the graph names with each of its passages; the answers are there
    where an LLM was given.
    """

    question: str
    vector: list[NodeWithScore]
    graph: list[NodeWithScore]
    relations: list[list[str]]
    vector_answer: str = ""
    graph_answer: str = ""


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The comparisons, and how often all gold passages were among the first three."""

    comparisons: list[Comparison]
    vector_complete: int
    graph_complete: int
    questions: int
    seconds: float


def run_demo(
    question: str | None = None,
    *,
    top_k: int = 3,
    embed_model: BaseEmbedding | None = None,
    llm: LLM | None = None,
) -> DemoResult:
    """Index the demo corpus in a temporary Milvus Lite and ask it.

    Parameters
    ----------
    question
        The one question to ask. Default: the corpus's five.
    top_k
        Passages each retriever returns.
    embed_model
        Default: the local model, which needs the extra ``local`` and no network.
    llm
        If given, it chooses relations and answers the (first) question from both.

    Raises
    ------
    GraphRAGValueError
        If the question is empty, or `top_k` out of range.
    """
    from llama_index.core import VectorStoreIndex

    from llama_index_graph_rag.index import GraphRAGIndex

    if question is not None:
        question = clean_text(question).strip()
        if not question:
            raise GraphRAGValueError("the question is empty; leave it out for those of the demo")
    start = time.perf_counter()
    if embed_model is None:
        from llama_index_graph_rag.embeddings import LocalEmbedding

        embed_model = LocalEmbedding()
    demo = load_demo()
    with tempfile.TemporaryDirectory() as folder:
        index = GraphRAGIndex.from_triplets(
            demo.nodes, demo.triplets, uri=Path(folder) / "demo.db", embed_model=embed_model
        )
        try:
            plain = VectorStoreIndex.from_vector_store(
                index.passage_vector_store, embed_model=embed_model
            )
            asked = [question] if question is not None else [q.question for q in demo.questions]
            comparisons = [
                _compare(index, plain, text, top_k, llm if place == 0 else None)
                for place, text in enumerate(asked)
            ]
        finally:
            index.close()
    gold = {q.question: set(q.gold_passage_ids) for q in demo.questions}
    known = [comparison for comparison in comparisons if comparison.question in gold]
    return DemoResult(
        comparisons=comparisons,
        vector_complete=sum(gold[c.question] <= _first_ids(c.vector) for c in known),
        graph_complete=sum(gold[c.question] <= _first_ids(c.graph) for c in known),
        questions=len(known),
        seconds=time.perf_counter() - start,
    )


def _compare(
    index: GraphRAGIndex, plain: VectorStoreIndex, question: str, top_k: int, llm: LLM | None
) -> Comparison:
    vector = plain.as_retriever(similarity_top_k=top_k)
    graph = index.as_retriever(similarity_top_k=top_k, llm=llm)
    nodes, trace = graph.retrieve_with_trace(question)
    found = vector.retrieve(question)
    answers = ["", ""]
    if llm is not None:
        from llama_index_graph_rag.models import answer_from

        tried = [answer_from(llm, question, given) for given in (found, nodes)]
        answers = [answer or reason for answer, reason in tried]
    return Comparison(
        question=question,
        vector=found,
        graph=nodes,
        relations=[[use.text for use in result.relations] for result in trace.results],
        vector_answer=answers[0],
        graph_answer=answers[1],
    )


def _first_ids(nodes: Sequence[NodeWithScore], limit: int = 3) -> set[str]:
    return {node.node.node_id for node in nodes[:limit]}


def demo_index() -> GraphRAGIndex:
    """Return an index of the demo corpus in a temporary Milvus Lite, embedded by the local model.

    Its folder goes with the process.
    """
    import atexit
    import shutil

    from llama_index_graph_rag.embeddings import LocalEmbedding
    from llama_index_graph_rag.index import GraphRAGIndex

    demo = load_demo()
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return GraphRAGIndex.from_triplets(
        demo.nodes, demo.triplets, uri=Path(folder) / "demo.db", embed_model=LocalEmbedding()
    )


def demo_llm() -> LLM | None:
    """Return a model behind OpenAI's API if ``OPENAI_API_KEY`` is set, else None."""
    if not os.environ.get("OPENAI_API_KEY"):
        return None
    from llama_index_graph_rag.models import llm_named

    return llm_named(None)
