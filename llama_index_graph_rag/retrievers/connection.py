"""ConnectionRetriever: how the entities of a question are connected, written out for an LLM."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, get_args

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import NodeWithScore, QueryBundle, QueryType
from llama_index_instrumentation import get_dispatcher

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError
from llama_index_graph_rag.explanation import Explaining
from llama_index_graph_rag.extractors.query import (
    EntityExtractor,
    NameFunction,
    as_entity_extractor,
)
from llama_index_graph_rag.extractors.vocabulary import VocabularyEntityExtractor
from llama_index_graph_rag.graph.connections import ConnectLimits
from llama_index_graph_rag.retrievers.connection_names import NameFinder
from llama_index_graph_rag.retrievers.connection_query import (
    ConnectionOptions,
    ConnectionQuery,
    Mode,
)
from llama_index_graph_rag.retrievers.connection_trace import ConnectionTrace
from llama_index_graph_rag.steps import Process, Step, adrive, drive, perform, together
from llama_index_graph_rag.stores.base import GraphReader
from llama_index_graph_rag.trace import RetrievalTraceEvent

logger = logging.getLogger("llama_index_graph_rag")
dispatcher = get_dispatcher(__name__)

VOCABULARY = VocabularyEntityExtractor()
FRONTIER_IN_MEMORY = 10_000
FRONTIER_OF_A_STORE = 100


class ConnectionRetriever(Explaining, BaseRetriever):
    """Connects the entities of a question and returns the paths as documents to read.

    No passage need hold both names of "What links A and B?": the graph is grown from both ends
    until they meet, all shortest paths are kept, pruned to a budget, and written out with the
    sentences that state them. Neither LLM nor embedding model is needed.

    Two entities or more give *path documents* (the path in one line, then each triplet with its
    evidence) and *entity documents* (what is known of each). One entity gives its entity document;
    none gives what `passage_retriever` finds, or nothing, with the reason in the trace.

    Parameters
    ----------
    reader
        The graph: any GraphReader. One that holds a snapshot in memory (an index of ours) is
        walked there, without a call to its store.
    entity_extractor
        What finds the question's entities: an extractor or a function from the question to names.
        Default: the names of the graph itself, for which the reader must hold a snapshot. None
        for use with `connect` alone.
    embed_model
        Orders triplets and paths by their nearness to the question; the model that the graph was
        embedded with. Default None: by link count, then name.
    mode
        ``both`` (default), ``paths`` or ``entities`` for the documents of these kinds, or
        ``passages`` for the original passages that state the paths.
    passage_retriever
        Another retriever, whose passages follow the documents, each once.
    max_paths
        Budget of paths. Default 5. With many names it is raised to what joins them.
    max_relations
        A budget of relations (joined pairs of entities) in place of that of paths. Default None.
    similarity_top_k
        Triplets of each entity document. Default 10.
    facts_per_pair
        Triplets written of two entities that several join. Default 3.
    evidence_per_fact
        Quotes of each triplet. Default 1.
    max_matches
        Entities that one name may mean; all are searched as one. Default 5.
    max_frontier
        Entities expanded a side and round. Default None: 10,000 in memory, otherwise 100.
    max_rounds, max_neighbors, max_new_nodes, max_links
        Rounds of growth, neighbours an entity contributes, new entities a side and round, and
        hits of a check for direct links; see ConnectLimits. Default 3, 100, 10,000, 10,000: paths
        have up to 7 edges.

    Raises
    ------
    GraphRAGValueError
        If a number is out of range, a mode unknown, or the reader lacks what is asked of it.

    Notes
    -----
    Over a store that holds no snapshot a question of two names costs at most 9 calls: one for the
    names, 1 + 3 x 2 for the walk and one for the facts; with `embed_model` one more where paths
    are pruned; and one for passages where the store has them but knows no sentences. Over a
    snapshot the walk costs none. The method is the bidirectional search of Pohl (1971), by layers.

    Examples
    --------
    >>> import tempfile
    >>> from llama_index.core import MockEmbedding
    >>> from llama_index_graph_rag.demo import load_demo
    >>> from llama_index_graph_rag import GraphRAGIndex
    >>> demo = load_demo()
    >>> index = GraphRAGIndex.from_triplets(
    ...     demo.nodes, demo.triplets, uri=tempfile.mkdtemp() + "/demo.db",
    ...     embed_model=MockEmbedding(8),
    ... )
    >>> retriever = ConnectionRetriever(index.store, mode="paths")
    >>> nodes = retriever.retrieve("What links Gabriel Cramer and Leonhard Euler?")
    >>> print(nodes[0].text.splitlines()[0])
    Gabriel Cramer -[edited the collected works of]-> Johann Bernoulli <-[was a student of]- \
Leonhard Euler
    >>> index.close()
    """

    def __init__(
        self,
        reader: GraphReader,
        *,
        entity_extractor: EntityExtractor | NameFunction | None = VOCABULARY,
        embed_model: BaseEmbedding | None = None,
        mode: Mode = "both",
        passage_retriever: BaseRetriever | None = None,
        max_paths: int = 5,
        max_relations: int | None = None,
        similarity_top_k: int = 10,
        facts_per_pair: int = 3,
        evidence_per_fact: int = 1,
        max_matches: int = 5,
        max_frontier: int | None = None,
        max_rounds: int = 3,
        max_neighbors: int = 100,
        max_new_nodes: int = 10_000,
        max_links: int = 10_000,
        callback_manager: CallbackManager | None = None,
        object_map: dict[str, Any] | None = None,
        verbose: bool = False,
    ) -> None:
        in_memory = callable(getattr(reader, "snapshot", None))
        if mode not in get_args(Mode):
            raise GraphRAGValueError(f"mode={mode!r}; give one of {', '.join(get_args(Mode))}")
        for name, value in {
            "max_paths": max_paths,
            "max_relations": 1 if max_relations is None else max_relations,
            "similarity_top_k": similarity_top_k,
            "facts_per_pair": facts_per_pair,
            "evidence_per_fact": evidence_per_fact,
            "max_matches": max_matches,
        }.items():
            if value < 1:
                raise GraphRAGValueError(f"{name} is {value}; give 1 or more")
        if mode == "passages" and not hasattr(reader, "get_passages"):
            raise GraphRAGValueError(
                f"mode='passages' needs a reader with get_passages, which {type(reader).__name__} "
                "has not; use mode='paths', or passage_retriever="
            )
        extractor = as_entity_extractor(entity_extractor)
        if isinstance(extractor, VocabularyEntityExtractor) and not in_memory:
            raise GraphRAGValueError(
                f"{type(reader).__name__} has no vocabulary in memory to find names with; give "
                "entity_extractor=, an LLM extractor or a function from the question to names"
            )
        if max_frontier is None:
            max_frontier = FRONTIER_IN_MEMORY if in_memory else FRONTIER_OF_A_STORE
        limits = ConnectLimits(
            rounds=max_rounds,
            neighbors=max_neighbors,
            new_nodes=max_new_nodes,
            frontier=max_frontier,
            links=max_links,
        )
        options = ConnectionOptions(
            mode=mode,
            max_paths=max_paths,
            max_relations=max_relations,
            similarity_top_k=similarity_top_k,
            facts_per_pair=facts_per_pair,
            evidence_per_fact=evidence_per_fact,
            limits=limits,
        )
        finder = NameFinder(reader, extractor, max_matches)
        self._query = ConnectionQuery(reader, finder, embed_model, options)
        self._passage_retriever = passage_retriever
        super().__init__(callback_manager=callback_manager, object_map=object_map, verbose=verbose)

    def retrieve_with_trace(self, query: QueryType) -> tuple[list[NodeWithScore], ConnectionTrace]:
        """Return what `retrieve` does, and the record of how it came about."""
        bundle, trace = _asked(query)
        return drive(self._run(bundle, None, trace)), trace

    async def aretrieve_with_trace(
        self, query: QueryType
    ) -> tuple[list[NodeWithScore], ConnectionTrace]:
        """Async twin of `retrieve_with_trace`."""
        bundle, trace = _asked(query)
        return await adrive(self._run(bundle, None, trace)), trace

    def connect(self, names: Sequence[str]) -> tuple[list[NodeWithScore], ConnectionTrace]:
        """Connect entities whose names (or ids) are known, and return documents and record.

        Raises
        ------
        GraphRAGTypeError
            If `names` is not a list of strings.
        """
        bundle, trace = _asked_of(names)
        return drive(self._run(bundle, names, trace)), trace

    async def aconnect(self, names: Sequence[str]) -> tuple[list[NodeWithScore], ConnectionTrace]:
        """Async twin of `connect`."""
        bundle, trace = _asked_of(names)
        return await adrive(self._run(bundle, names, trace)), trace

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self.retrieve_with_trace(query_bundle)[0]

    @dispatcher.span
    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return (await self.aretrieve_with_trace(query_bundle))[0]

    def _run(
        self, bundle: QueryBundle, names: Sequence[str] | None, trace: ConnectionTrace
    ) -> Process[list[NodeWithScore]]:
        def process() -> Process[list[NodeWithScore]]:
            return self._query.run(bundle, names, trace)

        nodes: list[NodeWithScore] = []
        with trace.timed("total"):
            if not trace.question:
                trace.fallbacks.append("the question is empty: nothing was asked")
            elif self._passage_retriever is None:
                nodes = _scored((yield from process()))
            else:
                retriever = self._passage_retriever
                found, passages = yield from perform(
                    together(
                        Step(run=lambda: drive(process()), arun=lambda: adrive(process())),
                        Step(
                            run=lambda: retriever.retrieve(bundle),
                            arun=lambda: retriever.aretrieve(bundle),
                        ),
                    )
                )
                nodes = _scored(_each_once(found, passages)) if found else _copies(passages)
        for line in trace.fallbacks:
            logger.info("ConnectionRetriever: %s", line)
        dispatcher.event(RetrievalTraceEvent(trace=trace))
        return nodes


def connect_text(reader: GraphReader, names: Sequence[str], **options: Any) -> str:
    """Return how entities are connected, as text for a terminal.

    Parameters
    ----------
    reader
        The graph.
    names
        Names or ids of entities, two or more.
    options
        Keywords of ConnectionRetriever.

    Examples
    --------
    >>> import tempfile
    >>> from llama_index.core import MockEmbedding
    >>> from llama_index_graph_rag.demo import load_demo
    >>> from llama_index_graph_rag import GraphRAGIndex
    >>> demo = load_demo()
    >>> index = GraphRAGIndex.from_triplets(
    ...     demo.nodes, demo.triplets, uri=tempfile.mkdtemp() + "/demo.db",
    ...     embed_model=MockEmbedding(8),
    ... )
    >>> print(connect_text(index.store, ["Leonhard Euler", "Albert Einstein"]).splitlines()[-1])
    'Albert Einstein': no entity of the graph has this name or id
    >>> index.close()
    """
    options.setdefault("mode", "paths")
    options.setdefault("entity_extractor", None)
    nodes, trace = ConnectionRetriever(reader, **options).connect(names)
    parts = [node.get_content() for node in nodes]
    for gap in trace.gaps:
        how = (
            "there is no path"
            if gap.exhausted
            else f"no path of up to {2 * gap.rounds + 1} edges was found"
        )
        parts.append(
            f"{gap.left} and {gap.right}: {how} ({gap.left_seen:,} and {gap.right_seen:,} "
            "entities searched)"
        )
    return "\n\n".join([*parts, *trace.fallbacks, *trace.dropped])


def _asked(query: QueryType) -> tuple[QueryBundle, ConnectionTrace]:
    bundle = query if isinstance(query, QueryBundle) else QueryBundle(query)
    return bundle, ConnectionTrace(question=bundle.query_str.strip())


def _asked_of(names: Sequence[str]) -> tuple[QueryBundle, ConnectionTrace]:
    several = isinstance(names, Iterable) and not isinstance(names, (str, bytes))
    if not several or not all(isinstance(name, str) for name in names):
        raise GraphRAGTypeError(f"names is a list of strings, got {names!r:.100}")
    return _asked(", ".join(names))


def _scored(nodes: Sequence[NodeWithScore]) -> list[NodeWithScore]:
    """Return copies with scores that fall with the order from 1 towards 0."""
    n = len(nodes)
    return [node.model_copy(update={"score": (n - i) / n}) for i, node in enumerate(nodes)]


def _copies(nodes: Sequence[NodeWithScore]) -> list[NodeWithScore]:
    return [node.model_copy() for node in nodes]


def _each_once(*parts: Sequence[NodeWithScore]) -> list[NodeWithScore]:
    first: dict[str, NodeWithScore] = {}
    for part in parts:
        for node in part:
            first.setdefault(node.node.node_id, node)
    return list(first.values())
