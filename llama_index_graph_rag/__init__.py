"""Graph RAG retrievers for LlamaIndex: multi-hop questions over a graph of triplets."""

from __future__ import annotations

__version__ = "0.1.0"
