"""Any LlamaIndex transform that leaves triplets on nodes, as a triplet extractor."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import islice

from llama_index.core.schema import BaseNode, TransformComponent
from pydantic import SerializeAsAny

from llama_index_graph_rag.errors import GraphRAGTypeError
from llama_index_graph_rag.extractors.base import Extraction, TripletExtractor
from llama_index_graph_rag.extractors.node_triplets import triplets_from_node
from llama_index_graph_rag.extractors.retry import describe

_BATCH = 16


class AdaptedExtractor(TripletExtractor):
    """Runs a transform, such as LlamaIndex's SimpleLLMPathExtractor, on copies of the nodes.

    A batch that fails is read again node by node, so that one bad passage costs no other. What
    the transform itself swallows cannot be told from a passage that states nothing.

    Parameters
    ----------
    transform
        Leaves KG_NODES_KEY and KG_RELATIONS_KEY, or our own key, on the nodes.

    Examples
    --------
    >>> from llama_index.core.indices.property_graph import ImplicitPathExtractor
    >>> from llama_index.core.schema import TextNode
    >>> extractor = AdaptedExtractor(transform=ImplicitPathExtractor())
    >>> next(extractor.extract([TextNode(text="Euler")])).failure is None
    True
    """

    transform: SerializeAsAny[TransformComponent]

    @classmethod
    def class_name(cls) -> str:
        """Name of the class."""
        return "AdaptedExtractor"

    def extract(self, nodes: Iterable[BaseNode]) -> Iterator[Extraction]:
        """Yield what the transform finds in each node."""
        waiting = iter(nodes)
        while batch := list(islice(waiting, _BATCH)):
            try:
                done = self.transform(_copies(batch))
            except Exception as error:  # whatever a transform raises costs a passage, not the run
                if len(batch) > 1:
                    for node in batch:
                        yield from self.extract([node])
                else:
                    yield Extraction(batch[0], failure=describe(error))
                continue
            yield from _extractions(batch, done)

    async def aextract(self, nodes: Iterable[BaseNode]) -> AsyncIterator[Extraction]:
        """Async twin of `extract`."""
        waiting = iter(nodes)
        while batch := list(islice(waiting, _BATCH)):
            try:
                done = await self.transform.acall(_copies(batch))
            except Exception as error:  # as above
                if len(batch) > 1:
                    for node in batch:
                        async for extraction in self.aextract([node]):
                            yield extraction
                else:
                    yield Extraction(batch[0], failure=describe(error))
                continue
            for extraction in _extractions(batch, done):
                yield extraction


def as_extractor(extractor: TransformComponent) -> TripletExtractor:
    """Return `extractor` as a TripletExtractor.

    Raises
    ------
    GraphRAGTypeError
        If it is no TransformComponent.
    """
    if isinstance(extractor, TripletExtractor):
        return extractor
    if not isinstance(extractor, TransformComponent):
        raise GraphRAGTypeError(
            f"triplet_extractor is a {type(extractor).__name__}; give a TripletExtractor or "
            "another TransformComponent that leaves triplets on nodes"
        )
    return AdaptedExtractor(transform=extractor)


def _copies(nodes: Sequence[BaseNode]) -> list[BaseNode]:
    return [node.model_copy(update={"metadata": dict(node.metadata)}) for node in nodes]


def _extractions(given: Sequence[BaseNode], done: Sequence[BaseNode]) -> Iterator[Extraction]:
    by_id = {node.node_id: node for node in done}
    for node in given:
        if node.node_id not in by_id:
            yield Extraction(node, failure="the extractor did not return this passage")
            continue
        found = triplets_from_node(by_id[node.node_id])
        yield Extraction(node, found.triplets, found.invalid, found.failure)
