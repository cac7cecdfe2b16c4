"""Graph RAG retrievers for LlamaIndex: multi-hop questions over a graph of triplets."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llama_index_graph_rag.errors import (
        GraphRAGError,
        GraphRAGTypeError,
        GraphRAGValueError,
        MissingExtraError,
        StoreError,
    )
    from llama_index_graph_rag.extractors.entities import LLMEntityExtractor
    from llama_index_graph_rag.extractors.triplets import LLMTripletExtractor
    from llama_index_graph_rag.extractors.vocabulary import VocabularyEntityExtractor
    from llama_index_graph_rag.index import GraphRAGIndex
    from llama_index_graph_rag.postprocessors.relation_rerank import LLMRelationRerank
    from llama_index_graph_rag.postprocessors.relations_to_passages import RelationsToPassages
    from llama_index_graph_rag.query_state import GraphRAGTrace
    from llama_index_graph_rag.retrievers.connection import ConnectionRetriever
    from llama_index_graph_rag.retrievers.graph_rag import GraphRAGRetriever
    from llama_index_graph_rag.retrievers.options import QueryOptions
    from llama_index_graph_rag.retrievers.relations import RelationRetriever
    from llama_index_graph_rag.stores.elasticsearch import ElasticsearchStore
    from llama_index_graph_rag.stores.milvus import MilvusGraphStore
    from llama_index_graph_rag.trace import (
        GraphNodeWithScore,
        RelationUse,
        RetrievalTrace,
        RetrievalTraceEvent,
    )
    from llama_index_graph_rag.triplets import Mention, Triplet

__version__ = "0.1.0"

# Imported at first use: Milvus's client alone takes longer to import than LlamaIndex's core.
_HOMES = {
    "ConnectionRetriever": "retrievers.connection",
    "ElasticsearchStore": "stores.elasticsearch",
    "GraphNodeWithScore": "trace",
    "GraphRAGError": "errors",
    "GraphRAGIndex": "index",
    "GraphRAGRetriever": "retrievers.graph_rag",
    "GraphRAGTrace": "query_state",
    "GraphRAGTypeError": "errors",
    "GraphRAGValueError": "errors",
    "LLMEntityExtractor": "extractors.entities",
    "LLMRelationRerank": "postprocessors.relation_rerank",
    "LLMTripletExtractor": "extractors.triplets",
    "Mention": "triplets",
    "MilvusGraphStore": "stores.milvus",
    "MissingExtraError": "errors",
    "QueryOptions": "retrievers.options",
    "RelationRetriever": "retrievers.relations",
    "RelationUse": "trace",
    "RelationsToPassages": "postprocessors.relations_to_passages",
    "RetrievalTrace": "trace",
    "RetrievalTraceEvent": "trace",
    "StoreError": "errors",
    "Triplet": "triplets",
    "VocabularyEntityExtractor": "extractors.vocabulary",
}

__all__ = [
    "ConnectionRetriever",
    "ElasticsearchStore",
    "GraphNodeWithScore",
    "GraphRAGError",
    "GraphRAGIndex",
    "GraphRAGRetriever",
    "GraphRAGTrace",
    "GraphRAGTypeError",
    "GraphRAGValueError",
    "LLMEntityExtractor",
    "LLMRelationRerank",
    "LLMTripletExtractor",
    "Mention",
    "MilvusGraphStore",
    "MissingExtraError",
    "QueryOptions",
    "RelationRetriever",
    "RelationUse",
    "RelationsToPassages",
    "RetrievalTrace",
    "RetrievalTraceEvent",
    "StoreError",
    "Triplet",
    "VocabularyEntityExtractor",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
