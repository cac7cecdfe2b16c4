"""RelationRetriever: the relations that stand for choice, as nodes for postprocessors."""

from __future__ import annotations

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.vector_stores import MetadataFilters

from llama_index_graph_rag.extractors.query import EntityExtractor, NameFunction
from llama_index_graph_rag.graph.ranking import DEFAULT_RANKING, Ranking
from llama_index_graph_rag.graph.select import decreasing
from llama_index_graph_rag.query_state import GraphRAGTrace, RelationNodeWithScore
from llama_index_graph_rag.retrievers.base import VOCABULARY, GraphStoreRetriever
from llama_index_graph_rag.retrievers.options import QueryOptions
from llama_index_graph_rag.steps import Process
from llama_index_graph_rag.stores.base import GraphIndexStore


class RelationRetriever(GraphStoreRetriever):
    """Returns relations, to be chosen from and turned into passages by postprocessors.

    With ``[LLMRelationRerank(llm=...), RelationsToPassages(store)]`` behind it in a
    RetrieverQueryEngine it gives the passages that GraphRAGRetriever gives with the same LLM.

    Parameters
    ----------
    store, entity_extractor, embed_model, ranking, filters
        As for GraphRAGRetriever.
    options
        The numbers of the recipe; `max_candidates` is how many relations are returned.

    Examples
    --------
    >>> from llama_index_graph_rag.stores.milvus import MilvusGraphStore
    >>> import tempfile
    >>> store = MilvusGraphStore(tempfile.mkdtemp() + "/demo.db")
    >>> RelationRetriever(store).retrieve("Who taught Euler?")
    []
    >>> store.close()
    """

    def __init__(
        self,
        store: GraphIndexStore,
        *,
        entity_extractor: EntityExtractor | NameFunction | None = VOCABULARY,
        embed_model: BaseEmbedding | None = None,
        ranking: str | Ranking = DEFAULT_RANKING,
        filters: MetadataFilters | None = None,
        options: QueryOptions | None = None,
    ) -> None:
        super().__init__(
            store,
            entity_extractor=entity_extractor,
            embed_model=embed_model,
            ranking=ranking,
            filters=filters,
            options=options or QueryOptions(),
        )

    def _process(self, bundle: QueryBundle, trace: GraphRAGTrace) -> Process[list[NodeWithScore]]:
        state = yield from self._query.candidates(bundle, trace)
        state.trace_subgraph()
        # In the order shown, not by relevance: candidates cover passages, the best ranked first.
        scores = decreasing([candidate.relevance for candidate in state.candidates])
        return [
            RelationNodeWithScore.from_candidate(candidate, state, score)
            for candidate, score in zip(state.candidates, scores)
        ]
