"""Documents whose paragraphs state facts that a scripted LLM reads, and counting models."""

from __future__ import annotations

import json
import re
import threading

from llama_index.core import Document
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.node_parser import NodeParser
from llama_index.core.node_parser.node_utils import build_nodes_from_splits
from pydantic import PrivateAttr

from llama_index_graph_rag.extractors.retry import RetryPolicy
from llama_index_graph_rag.extractors.triplets import LLMTripletExtractor
from llama_index_graph_rag.testing.openai_server import hash_embedding
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM


class Paragraphs(NodeParser):
    """Splits at empty lines; the ids are random, as they are by default."""

    def _parse_nodes(self, nodes, show_progress=False, **kwargs):
        return [
            made
            for node in nodes
            for made in build_nodes_from_splits(
                node.get_content().split("\n\n"), node, id_func=self.id_func
            )
        ]


class CountingEmbedding(BaseEmbedding):
    """Hashed words; `texts` lists all texts that were embedded."""

    dimension: int = 16
    _texts: list[str] = PrivateAttr(default_factory=list)
    _lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)

    def __init__(self, embed_batch_size: int = 10) -> None:
        super().__init__(model_name="counting", embed_batch_size=embed_batch_size)

    @property
    def texts(self) -> list[str]:
        return self._texts

    def _get_text_embedding(self, text: str) -> list[float]:
        with self._lock:
            self._texts.append(text)
        return hash_embedding(text, self.dimension).tolist()

    _get_query_embedding = _get_text_embedding

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


def facts(prompt: str) -> list[list[str]]:
    """Return the facts of a paragraph; entities are called E0, E1 and so on."""
    return [list(fact) for fact in re.findall(r"\b(E\d+) (joins|leaves) (E\d+)\b", prompt)]


def read(prompt: str) -> str:
    """Answer as an LLM that extracts triplets."""
    return json.dumps(facts(prompt))


def paragraph(number: int, entities: int = 7) -> str:
    """Return paragraph `number`: a fact of its own, and one that it shares with some others."""
    shared = number % entities
    return f"Paragraph {number}. E{number + 100} joins E{shared}. E{shared} leaves E{shared + 1}."


def document(name: str, numbers, **metadata) -> Document:
    return Document(text="\n\n".join(map(paragraph, numbers)), id_=name, metadata=metadata)


def documents(count: int, each: int) -> list[Document]:
    return [document(f"d{i}", range(i * each, (i + 1) * each)) for i in range(count)]


def reader(llm=None, *, attempts: int = 1, num_workers: int = 4) -> LLMTripletExtractor:
    """Return an extractor that does not wait between attempts."""
    policy = RetryPolicy(attempts=attempts, initial_wait=0.0, max_wait=0.01)
    return LLMTripletExtractor(llm or ScriptedLLM(read), num_workers=num_workers, retry=policy)


def contents(index) -> dict[str, object]:
    """Return all that an index holds, by id: what two equal indexes have in common."""
    store = index.store
    keys = [key for page in store.scan_passages() for key in page]
    return {
        "passages": {
            key.id: (key.ref_doc_id, sorted(key.relation_ids), key.content_hash) for key in keys
        },
        "documents": {
            key.ref_doc_id: store.snapshot().document_hash(key.ref_doc_id) for key in keys
        },
        "relations": {tuple(key) for page in store.scan_relations() for key in page},
        "entities": {key.id for page in store.scan_entities() for key in page},
    }
