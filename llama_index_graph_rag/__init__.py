"""Graph RAG retrievers for LlamaIndex: multi-hop questions over a graph of triplets."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llama_index_graph_rag.embeddings import LocalEmbedding
    from llama_index_graph_rag.errors import (
        GraphRAGError,
        GraphRAGTypeError,
        GraphRAGValueError,
        MissingExtraError,
        StoreError,
    )
    from llama_index_graph_rag.explanation import Explanation
    from llama_index_graph_rag.extractors.entities import LLMEntityExtractor
    from llama_index_graph_rag.extractors.keywords import LLMKeywordExtractor
    from llama_index_graph_rag.extractors.resolver import EntityResolver
    from llama_index_graph_rag.extractors.triplets import LLMTripletExtractor
    from llama_index_graph_rag.extractors.vocabulary import VocabularyEntityExtractor
    from llama_index_graph_rag.index import GraphRAGIndex
    from llama_index_graph_rag.pipeline import GraphRAGPipeline
    from llama_index_graph_rag.postprocessors.relation_rerank import LLMRelationRerank
    from llama_index_graph_rag.postprocessors.relations_to_passages import RelationsToPassages
    from llama_index_graph_rag.query_state import GraphRAGTrace
    from llama_index_graph_rag.retrievers.connection import ConnectionRetriever
    from llama_index_graph_rag.retrievers.connection_trace import ConnectionTrace
    from llama_index_graph_rag.retrievers.graph_rag import GraphRAGRetriever
    from llama_index_graph_rag.retrievers.knowledge_graph import KnowledgeGraphRetriever
    from llama_index_graph_rag.retrievers.knowledge_nodes import KnowledgeGraphTrace
    from llama_index_graph_rag.retrievers.options import QueryOptions
    from llama_index_graph_rag.retrievers.relations import RelationRetriever
    from llama_index_graph_rag.stores.elasticsearch import ElasticsearchStore
    from llama_index_graph_rag.stores.hugegraph import HugeGraphStore
    from llama_index_graph_rag.stores.milvus import MilvusGraphStore
    from llama_index_graph_rag.stores.property_graph import PropertyGraphReader
    from llama_index_graph_rag.trace import (
        GraphNodeWithScore,
        RelationUse,
        RetrievalTrace,
        RetrievalTraceEvent,
    )
    from llama_index_graph_rag.triplets import Mention, Triplet
    from llama_index_graph_rag.vector_store import GraphRAGVectorStore

__version__ = "0.1.0"

# Imported at first use: Milvus's client alone takes longer to import than LlamaIndex's core.
_HOMES = {
    "ConnectionRetriever": "retrievers.connection",
    "ConnectionTrace": "retrievers.connection_trace",
    "ElasticsearchStore": "stores.elasticsearch",
    "EntityResolver": "extractors.resolver",
    "Explanation": "explanation",
    "GraphNodeWithScore": "trace",
    "GraphRAGError": "errors",
    "GraphRAGIndex": "index",
    "GraphRAGPipeline": "pipeline",
    "GraphRAGRetriever": "retrievers.graph_rag",
    "GraphRAGTrace": "query_state",
    "GraphRAGTypeError": "errors",
    "GraphRAGValueError": "errors",
    "GraphRAGVectorStore": "vector_store",
    "HugeGraphStore": "stores.hugegraph",
    "KnowledgeGraphRetriever": "retrievers.knowledge_graph",
    "KnowledgeGraphTrace": "retrievers.knowledge_nodes",
    "LLMEntityExtractor": "extractors.entities",
    "LLMKeywordExtractor": "extractors.keywords",
    "LLMRelationRerank": "postprocessors.relation_rerank",
    "LLMTripletExtractor": "extractors.triplets",
    "LocalEmbedding": "embeddings",
    "Mention": "triplets",
    "MilvusGraphStore": "stores.milvus",
    "MissingExtraError": "errors",
    "PropertyGraphReader": "stores.property_graph",
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
    "ConnectionTrace",
    "ElasticsearchStore",
    "EntityResolver",
    "Explanation",
    "GraphNodeWithScore",
    "GraphRAGError",
    "GraphRAGIndex",
    "GraphRAGPipeline",
    "GraphRAGRetriever",
    "GraphRAGTrace",
    "GraphRAGTypeError",
    "GraphRAGValueError",
    "GraphRAGVectorStore",
    "HugeGraphStore",
    "KnowledgeGraphRetriever",
    "KnowledgeGraphTrace",
    "LLMEntityExtractor",
    "LLMKeywordExtractor",
    "LLMRelationRerank",
    "LLMTripletExtractor",
    "LocalEmbedding",
    "Mention",
    "MilvusGraphStore",
    "MissingExtraError",
    "PropertyGraphReader",
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
