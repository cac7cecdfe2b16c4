"""Why a result is there, to print, to look at and to compute with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from llama_index.core.schema import MetadataMode, NodeWithScore, QueryType
from llama_index_instrumentation import get_dispatcher

from llama_index_graph_rag.errors import GraphRAGTypeError
from llama_index_graph_rag.trace import GraphNodeWithScore, RetrievalTrace

if TYPE_CHECKING:
    from networkx import MultiDiGraph
    from rich.tree import Tree

    from llama_index_graph_rag.visualize.branch import Branch
    from llama_index_graph_rag.visualize.page import ShownPassage

dispatcher = get_dispatcher(__name__)


@dataclass(frozen=True, repr=False)
class Explanation:
    """What a retrieval recalled, how it grew, what was chosen and why, and what it cost.

    ``print(explanation)`` writes a tree of text; ``rich.print`` a coloured one; a notebook shows
    the page that `save_html` writes.

    Attributes
    ----------
    nodes
        The results.
    trace
        The record that all of this is read from.

    Examples
    --------
    >>> from llama_index.core.graph_stores import SimplePropertyGraphStore
    >>> from llama_index.core.graph_stores.types import EntityNode, Relation
    >>> from llama_index_graph_rag.retrievers.knowledge_graph import KnowledgeGraphRetriever
    >>> store = SimplePropertyGraphStore()
    >>> store.upsert_nodes([EntityNode(name="Euler"), EntityNode(name="Basel")])
    >>> store.upsert_relations(
    ...     [Relation(label="born in", source_id="Euler", target_id="Basel")]
    ... )
    >>> retriever = KnowledgeGraphRetriever(store, keyword_extractor=lambda question: ["Euler"])
    >>> explanation = retriever.explain("Where was Euler born?")
    >>> explanation
    <Explanation of 'Where was Euler born?', results: 1>
    >>> for line in str(explanation).splitlines()[:5]:
    ...     print(line)
    Where was Euler born?
    ├─ Looked for
    │  └─ keywords: Euler
    ├─ Found in the graph (1)
    │  └─ Euler: Euler
    >>> list(explanation.to_networkx().edges(data="predicate"))
    [('Euler', 'Basel', 'born in')]
    """

    nodes: tuple[NodeWithScore, ...]
    trace: RetrievalTrace

    @classmethod
    def from_trace(cls, nodes: Sequence[NodeWithScore], trace: RetrievalTrace) -> Explanation:
        """Explain results that are there already, such as a response's ``source_nodes``.

        Parameters
        ----------
        nodes, trace
            As `retrieve_with_trace`, `ConnectionRetriever.connect`, or a response together with
            a `RetrievalTraceEvent` gives them.

        Raises
        ------
        GraphRAGTypeError
            If `trace` is none, for instance because both were given in the wrong order.
        """
        if not isinstance(trace, RetrievalTrace):
            raise GraphRAGTypeError(
                f"trace is a RetrievalTrace, got {type(trace).__name__}; call "
                "Explanation.from_trace(*retriever.retrieve_with_trace(question))"
            )
        return cls(tuple(nodes), trace)

    @property
    def tree(self) -> Branch:
        """What is said, as a tree of lines."""
        from llama_index_graph_rag.visualize.story import story

        return story(self.trace, self.nodes)

    def __repr__(self) -> str:
        return f"<Explanation of {self.trace.question!r}, results: {len(self.nodes)}>"

    def __str__(self) -> str:
        return str(self.tree)

    def __rich__(self) -> Tree:
        """Return the tree that rich prints."""
        return self.tree.__rich__()

    def to_html(self) -> str:
        """Return one page that needs no network: the drawing, the results and the tree."""
        from llama_index_graph_rag.visualize.page import page
        from llama_index_graph_rag.visualize.picture import picture
        from llama_index_graph_rag.visualize.story import roles, seeds

        return page(
            self.tree,
            picture(self.trace.subgraph, seeds(self.trace)),
            [self._shown(node) for node in self.nodes],
            roles(self.trace),
            beyond=self.trace.beyond_subgraph,
        )

    def save_html(self, path: str | Path = "explanation.html") -> Path:
        """Write the page of `to_html` to a file and return its path.

        Parameters
        ----------
        path
            An existing file is replaced. Its folder must be there.
        """
        file = Path(path)
        # A lone surrogate in a text must not cost the page.
        file.write_text(self.to_html(), encoding="utf-8", errors="replace")
        return file

    def _repr_html_(self) -> str:
        from llama_index_graph_rag.visualize.page import frame

        return frame(self.to_html(), str(self))

    def to_networkx(self) -> MultiDiGraph[str]:
        """Return what the question touched: entities by name, relations with their predicates.

        Nodes have ``id`` and ``seed``; edges are keyed by relation id and have ``predicate``
        (empty where no passage that was fetched states it), ``role``, ``degree`` and
        ``similarity``, see `TracedRelation`.
        """
        from llama_index_graph_rag.visualize.networkx_graph import graph_of_relations
        from llama_index_graph_rag.visualize.story import seeds

        graph: MultiDiGraph[str] = graph_of_relations(self.trace.subgraph, seeds(self.trace))
        return graph

    def _shown(self, node: NodeWithScore) -> ShownPassage:
        from llama_index_graph_rag.visualize.page import ShownPassage
        from llama_index_graph_rag.visualize.story import brought_by, title_of

        uses = node.relations if isinstance(node, GraphNodeWithScore) else ()
        title = title_of(node)
        return ShownPassage(
            title=title,
            text=node.node.get_content(MetadataMode.NONE).removeprefix(f"{title}\n"),
            score=node.score,
            how=brought_by(self.trace, node),
            relations=[(use.id, use.text) for use in uses],
        )


class _Tracing(Protocol):
    def retrieve_with_trace(
        self, query: QueryType
    ) -> tuple[list[NodeWithScore], RetrievalTrace]: ...

    async def aretrieve_with_trace(
        self, query: QueryType
    ) -> tuple[list[NodeWithScore], RetrievalTrace]: ...


class Explaining:
    """What a retriever with `retrieve_with_trace` gains: it explains itself."""

    @dispatcher.span
    def explain(self: _Tracing, query: QueryType) -> Explanation:
        """Retrieve, and return why the results are there.

        Parameters
        ----------
        query
            The question.

        Returns
        -------
        Explanation
            Print it, look at it in a notebook, or call its `save_html`; ``explanation.nodes`` are
            what `retrieve` returns.
        """
        return Explanation.from_trace(*self.retrieve_with_trace(query))

    @dispatcher.span
    async def aexplain(self: _Tracing, query: QueryType) -> Explanation:
        """Async twin of `explain`."""
        return Explanation.from_trace(*await self.aretrieve_with_trace(query))
