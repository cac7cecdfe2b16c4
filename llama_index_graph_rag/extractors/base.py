"""The interface of triplet extractors: LlamaIndex transforms that can also be iterated."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NoReturn

from llama_index.core.schema import BaseNode, MetadataMode, TransformComponent
from tqdm import tqdm

from llama_index_graph_rag.extractors.llm_calls import LLMUsage
from llama_index_graph_rag.extractors.node_triplets import (
    TRIPLETS_KEY,
    extraction_report,
    put_failure,
    put_triplets,
)
from llama_index_graph_rag.progress import progress_bar
from llama_index_graph_rag.triplets import InvalidTriplet, Triplet

logger = logging.getLogger("llama_index_graph_rag")

_BATCH = 32


@dataclass(frozen=True, slots=True)
class Extraction:
    """What came of one passage.

    Attributes
    ----------
    node
        The passage, as it was given and unchanged.
    triplets
        The valid triplets; none is an honest answer where `failure` is None.
    invalid
        Triplets left out, with the reason.
    failure
        Why the passage could not be read, or None.
    usage
        The LLM's calls and tokens spent on it, retries included.
    """

    node: BaseNode
    triplets: tuple[Triplet, ...] = ()
    invalid: tuple[InvalidTriplet, ...] = ()
    failure: str | None = None
    usage: LLMUsage = field(default_factory=LLMUsage)


class TripletExtractor(TransformComponent):
    """Base of the extractors: what they find is left on the nodes' metadata.

    A subclass writes `extract`, and `aextract` where it has a way of its own to wait. Called as a
    transform, an extractor passes over nodes that already carry triplets of ours, so that calling
    it again on the same nodes retries those that failed and no others.
    """

    @abstractmethod
    def extract(self, nodes: Iterable[BaseNode]) -> Iterator[Extraction]:
        """Yield what is found in each node, in the order in which they are done.

        Nodes are drawn from the iterable as they are needed and left unchanged. A node that
        fails is yielded with its reason; nothing is raised for it.
        """

    async def aextract(self, nodes: Iterable[BaseNode]) -> AsyncIterator[Extraction]:
        """Async twin of `extract`; by default `extract` in a thread, some nodes at a time."""
        waiting = iter(nodes)
        while batch := list(islice(waiting, _BATCH)):
            for extraction in await asyncio.to_thread(_all, self, batch):
                yield extraction

    def __call__(
        self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any
    ) -> Sequence[BaseNode]:
        """Leave triplets, or the reason of a failure, on those `nodes` that carry none yet.

        Parameters
        ----------
        nodes
            The nodes; changed in place and returned in the same order.
        show_progress
            Whether to show a progress bar.
        """
        waiting = _unread(nodes)
        invalid = 0
        with self._bar(waiting, show_progress) as bar:
            for extraction in self.extract(waiting):
                _put(extraction)
                invalid += len(extraction.invalid)
                bar.update()
        _log(self, nodes, invalid)
        return nodes

    async def acall(
        self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any
    ) -> Sequence[BaseNode]:
        """Async twin of `__call__`."""
        waiting = _unread(nodes)
        invalid = 0
        with self._bar(waiting, show_progress) as bar:
            async for extraction in self.aextract(waiting):
                _put(extraction)
                invalid += len(extraction.invalid)
                bar.update()
        _log(self, nodes, invalid)
        return nodes

    def _bar(self, nodes: Sequence[BaseNode], show_progress: bool) -> tqdm[NoReturn]:
        return progress_bar(len(nodes), "Extracting triplets", show=show_progress)


def passage_text(node: BaseNode) -> str:
    """Return what of `node` is read: its text with the metadata that an LLM may see."""
    return node.get_content(metadata_mode=MetadataMode.LLM)


def _all(extractor: TripletExtractor, nodes: Sequence[BaseNode]) -> list[Extraction]:
    return list(extractor.extract(nodes))


def _unread(nodes: Sequence[BaseNode]) -> list[BaseNode]:
    return [node for node in nodes if TRIPLETS_KEY not in node.metadata]


def _put(extraction: Extraction) -> None:
    if extraction.failure is None:
        put_triplets(extraction.node, extraction.triplets)
    else:
        put_failure(extraction.node, extraction.failure)


def _log(extractor: TripletExtractor, nodes: Sequence[BaseNode], invalid: int) -> None:
    if invalid:
        logger.info("%s: %d triplets left out as invalid", extractor.class_name(), invalid)
    report = extraction_report(nodes)
    if report.failures:
        first = report.failures[0]
        logger.warning(
            "%s: %d of %d passages failed, the first (%s) with %s; extraction_report(nodes) lists "
            "them all, and calling the extractor on the same nodes again retries them alone",
            extractor.class_name(),
            len(report.failures),
            report.passages,
            first.node_id,
            first.reason,
        )
