"""vector-graph-rag 0.4.0 behind JSON lines, with stubs for its embedding model and LLM.

Run by `benchmarks.ingest` with the Python of a virtual environment that holds that package. The
first line names the database and a file of documents; each further line asks a question and says
which entities it names. An answer tells the seconds spent outside the two stubs.
"""

import json
import re
import sys
import time

import numpy as np
from stub_vectors import DIMENSION, text_vector
from vector_graph_rag import VectorGraphRAG
from vector_graph_rag.config import Settings
from vector_graph_rag.graph.retriever import GraphRetriever
from vector_graph_rag.llm.reranker import LLMReranker
from vector_graph_rag.storage.embedding_providers.openai import OpenAIEmbedding


class Stubs:
    """The models; `seconds` adds up the time spent in them."""

    def __init__(self):
        self.words = {}
        self.seconds = 0.0
        self.entities = []  # what an LLM would find in the question

    def install(self):
        """Put the stubs where the package would call a service."""
        OpenAIEmbedding.dimension = DIMENSION
        OpenAIEmbedding.encode = lambda _, texts, **__: self.embed(texts)
        GraphRetriever._extract_query_entities = lambda _, question: self.entities
        LLMReranker._call_llm = lambda _, question, relations: self.choose(relations)

    def embed(self, texts):
        """Stand for the embedding model's backend."""
        start = time.perf_counter()
        texts = [texts] if isinstance(texts, str) else texts
        vectors = np.array([text_vector(text, self.words) for text in texts])
        self.seconds += time.perf_counter() - start
        return vectors

    def choose(self, relations):
        """Stand for the LLM that chooses relations: the first five."""
        start = time.perf_counter()
        lines = [line for line in relations.split("\n", 5) if line][:5]
        self.seconds += time.perf_counter() - start
        return json.dumps({"thought_process": "", "useful_relations": lines})


def main():
    """Build the index, then answer until the input ends."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever the package prints must not disturb the answers
    order = json.loads(sys.stdin.readline())
    stubs = Stubs()
    stubs.install()
    rag = VectorGraphRAG(
        settings=Settings(
            milvus_uri=order["uri"],
            openai_api_key="unused",
            embedding_provider="openai",
            embedding_model="text-embedding-3-small",
            embedding_dimension=DIMENSION,
            expansion_degree=1,
            final_top_k=order["top_k"],
            use_llm_cache=False,
        )
    )
    with open(order["documents"], encoding="utf-8") as file:
        documents = [json.loads(line) for line in file]
    start = time.perf_counter()
    rag.rebuild_documents_with_triplets(documents, show_progress=False)
    print(json.dumps({"index_s": time.perf_counter() - start}), file=answers, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        stubs.entities = [re.sub("[^a-z0-9 ]", " ", name.lower()) for name in order["entities"]]
        stubs.seconds = 0.0
        start = time.perf_counter()
        result = rag.retrieve(order["question"])
        seconds = time.perf_counter() - start - stubs.seconds
        answer = {
            "seconds": seconds,
            "passages": len(result.retrieved_passages),
            "relations": len(result.expanded_relations),
        }
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
