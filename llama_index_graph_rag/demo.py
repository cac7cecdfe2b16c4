"""The corpus that ships with the package: the Bernoullis, Euler and their time."""

from __future__ import annotations

from importlib import resources

from llama_index_graph_rag.evaluation.datasets import Dataset, load_dataset

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
