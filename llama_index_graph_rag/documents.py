"""From documents to committed passages: split, read, written in batches, and taken up again.

A document's hash is recorded on one of its passages, by the write that completes it. While a
document changes it carries none, so that a run that ends anywhere is completed by the next one:
passages that are committed are recognised by their content hash and cost nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeVar

from llama_index.core.ingestion import arun_transformations, run_transformations
from llama_index.core.schema import BaseNode, Document, MetadataMode, TransformComponent
from tqdm import tqdm

from llama_index_graph_rag.aliases import resolve_passages
from llama_index_graph_rag.document_nodes import UNREAD, is_random, passage_hash, with_stable_ids
from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError
from llama_index_graph_rag.estimate import Estimate, estimate
from llama_index_graph_rag.extractors.base import Extraction, TripletExtractor, passage_text
from llama_index_graph_rag.extractors.feed import ExtractionFeed
from llama_index_graph_rag.extractors.node_triplets import (
    ExtractionFailure,
    strip_graph_metadata,
    triplets_from_node,
)
from llama_index_graph_rag.extractors.resolver import EntityResolver
from llama_index_graph_rag.graph.snapshot import GraphSnapshot
from llama_index_graph_rag.progress import progress_bar
from llama_index_graph_rag.steps import Process, Step, call, perform
from llama_index_graph_rag.stored import stored_passages
from llama_index_graph_rag.stores.base import GraphIndexStore
from llama_index_graph_rag.writing import BATCH_PASSAGES, Passage, Writer, WriteReport, prepare

logger = logging.getLogger("llama_index_graph_rag")

COMMIT_PASSAGES = 32
"""Passages that an LLM has read and that are committed together: what a crash can cost."""
WAVE_PASSAGES = 256
"""Passages to read from which no further document is split: what bounds the memory."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Plan:
    """What is to be done for one document, or for nodes without one (`hash` is empty)."""

    hash: str = ""
    ids: list[str] = field(default_factory=list)
    items: list[_Item] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    holders: list[str] = field(default_factory=list)
    waiting: int = 0
    failed: bool = False
    recorded: bool = False

    def add(self, item: _Item) -> None:
        self.items.append(item)
        self.waiting += 1


@dataclass(slots=True, eq=False)
class _Item:
    """A passage to be written; `passage` has its triplets if `read`."""

    plan: _Plan
    node: BaseNode
    hash: str
    passage: Passage
    read: bool
    stored: bool
    failure: str | None = None


@dataclass(slots=True)
class Ingestion:
    """Turns documents, or nodes, into committed passages, as processes to drive.

    Parameters
    ----------
    writer
        Embeds and writes.
    transformations
        Split a document into nodes.
    extractor
        Gives what reads passages, or None to store them unread; called when first needed.
    resolver
        Renames entities; None leaves them.
    report
        Where to count.
    show_progress
        Whether to show a progress bar.
    """

    writer: Writer
    transformations: Sequence[TransformComponent]
    extractor: Callable[[], TripletExtractor | None]
    resolver: EntityResolver | None = None
    report: WriteReport = field(default_factory=WriteReport)
    show_progress: bool = False

    @property
    def store(self) -> GraphIndexStore:
        """The store written to."""
        return self.writer.store

    @property
    def _wave(self) -> int:
        return max(WAVE_PASSAGES, COMMIT_PASSAGES * self.writer.workers)

    def add_documents(self, documents: Iterable[Document]) -> Process[list[bool]]:
        """Bring the index up to date with `documents`; return which of them it had to write."""
        wanted = list(_distinct(documents))  # all are looked at before anything is written
        _warn_of_random_ids(wanted)
        yield from call(self.store.refresh, self.store.arefresh)
        changed: list[bool] = []
        wave: list[_Plan] = []
        taken: set[str] = set()
        with self._bar() as bar:
            for document in wanted:
                plan = None if document is None else (yield from self._plan(document, taken))
                changed.append(plan is not None)
                if plan is not None:
                    wave.append(plan)
                    taken.update(plan.ids)
                    if sum(len(plan.items) for plan in wave) >= self._wave:
                        yield from self._run(wave, bar)
                        wave, taken = [], set()
            yield from self._run(wave, bar)
        return changed

    def add_nodes(self, nodes: Sequence[BaseNode]) -> Process[None]:
        """Write nodes; those that no extractor has read yet are read where there is one."""
        yield from call(self.store.refresh, self.store.arefresh)
        plan = _Plan()
        self._fill(plan, nodes, self.store.snapshot())
        yield from self.writer.begin([item.passage for item in plan.items])
        with self._bar() as bar:
            for items in _parts(plan.items, self._wave):
                yield from self._run([_Plan(items=items)], bar)

    def estimate(self, documents: Iterable[Document], **options: Any) -> Process[Estimate]:
        """Return what `add_documents` would cost; see `estimate.estimate` for the options."""
        yield from call(self.store.refresh, self.store.arefresh)
        total = estimate([], **options)
        for document in _distinct(documents):
            plan = None if document is None else (yield from self._plan(document, frozenset()))
            if plan is not None:
                _, unread = yield from self._reused(plan.items)
                total = _sum(total, estimate([item.node for item in unread], **options))
        return total

    # --- planning -------------------------------------------------------------------------------

    def _plan(self, document: Document, taken: Set[str]) -> Process[_Plan | None]:
        snapshot = self.store.snapshot()
        stored = snapshot.passages_of_document(document.id_)
        if snapshot.document_hash(document.id_) == document.hash:
            self.report.unchanged += len(stored)
            return None
        nodes = yield from call(
            run_transformations, arun_transformations, [document], self.transformations
        )
        plan = _Plan(hash=document.hash, holders=list(snapshot.document_hashes(document.id_)))
        self._fill(plan, with_stable_ids(document, nodes), snapshot)
        plan.gone = sorted(set(stored) - set(plan.ids))
        for id in set(plan.ids).difference(stored):
            if id in taken or snapshot.content_hash(id) is not None:
                raise GraphRAGValueError(
                    f"passage id {id!r} of document {document.id_!r} is that of a passage of "
                    "another document; let the splitter's id_func use the document's id, or leave "
                    "it out"
                )
        return plan if plan.ids or plan.gone else None

    def _fill(self, plan: _Plan, nodes: Sequence[BaseNode], snapshot: GraphSnapshot) -> None:
        hashes: dict[str, str] = {}
        for node in nodes:
            if not isinstance(node, BaseNode):
                raise GraphRAGTypeError(f"nodes hold a {type(node).__name__}; give a list of nodes")
            found = triplets_from_node(node)
            if not found.triplets and not node.get_content(MetadataMode.NONE).strip():
                self.report.empty += 1
                continue
            stated = found.triplets if found.extracted else None
            hash = passage_hash(strip_graph_metadata(node), stated)
            id = node.node_id
            if hashes.setdefault(id, hash) != hash:
                raise GraphRAGValueError(
                    f"node id {id!r} is given twice with different content; give each passage an "
                    "id of its own"
                )
            if len(hashes) == len(plan.ids):
                continue  # given before
            plan.ids.append(id)
            self.report.invalid += found.invalid
            known = snapshot.content_hash(id)
            if known == hash:
                self.report.unchanged += 1
                continue
            passage = prepare(node, found.triplets)[0]
            self.store.check(passage.row(()))
            stored = known is not None and not known.startswith(UNREAD)
            plan.add(_Item(plan, node, hash, passage, found.extracted, stored, found.failure))

    # --- carrying out ---------------------------------------------------------------------------

    def _run(self, plans: Sequence[_Plan], bar: tqdm[NoReturn]) -> Process[None]:
        items = [item for plan in plans for item in plan.items]
        yield from self.writer.begin([item.passage for item in items])
        bar.total = (bar.total or 0) + len(items)
        holders = {id: "" for plan in plans for id in plan.holders}
        yield from self._record(holders)
        ready, unread = yield from self._reused(items)
        for part in _parts(ready, BATCH_PASSAGES):
            yield from self._commit(part, bar)
        yield from self._extract(unread, bar)
        gone = [id for plan in plans for id in plan.gone]
        if gone:
            yield from call(self.store.delete_passages, self.store.adelete_passages, gone)
            self.report.deleted += len(gone)
        complete = [plan for plan in plans if plan.ids and not plan.failed and not plan.recorded]
        yield from self._record({plan.ids[0]: plan.hash for plan in complete if plan.hash})

    def _record(self, hashes: Mapping[str, str]) -> Process[None]:
        """Write document hashes onto passages that are stored, at no cost for a model."""
        for ids in _parts(list(hashes), BATCH_PASSAGES):
            stored = yield from stored_passages(self.store, ids)
            rows = [replace(row, document_hash=hashes[row.node.node_id]) for row in stored]
            yield from self.writer.write_batch(rows, WriteReport())

    def _reused(self, items: Sequence[_Item]) -> Process[tuple[list[_Item], list[_Item]]]:
        """Split items into those whose triplets are known, and those to be read.

        Known are those that came with triplets, and those that are stored with other metadata but
        read the same: a new date on a file is not worth an LLM's time.
        """
        ready = [item for item in items if item.read]
        unread = [item for item in items if not item.read and not item.stored]
        for part in _parts([i for i in items if not i.read and i.stored], BATCH_PASSAGES):
            ids = [item.node.node_id for item in part]
            found = yield from stored_passages(self.store, ids)
            stored = {passage.node.node_id: passage for passage in found}
            for item in part:
                old = stored.get(item.node.node_id)
                new = item.passage
                # Texts as they are stored: what prepare() cleans is cleaned on both sides.
                if old is None or passage_text(old.node) != passage_text(new.node):
                    unread.append(item)
                    continue
                embedding = new.embedding
                if embedding is None and old.text == new.text:
                    embedding = old.embedding
                item.passage = replace(
                    new,
                    mentions=old.mentions,
                    relation_ids=old.relation_ids,
                    embedding=embedding,
                )
                self.report.reused += 1
                ready.append(item)
        return ready, unread

    def _extract(self, items: Sequence[_Item], bar: tqdm[NoReturn]) -> Process[None]:
        extractor = self.extractor() if items else None
        if extractor is None:
            for item in items:
                item.failure = item.failure or "no extractor has read this passage"
            for part in _parts(items, BATCH_PASSAGES):
                yield from self._commit(part, bar)
            return
        waiting = {item.node.node_id: item for item in items}
        feed = ExtractionFeed(extractor, [item.node for item in items])
        batch: list[_Item] = []
        try:
            while (found := (yield from perform(feed.step))) is not None:
                done = waiting.pop(found.node.node_id, None)
                if done is None:
                    raise GraphRAGTypeError(
                        f"{type(extractor).__name__} yielded passage {found.node.node_id!r}, which "
                        "it was not given or yielded before; it must yield each passage once"
                    )
                batch.append(self._with_triplets(done, found))
                if len(batch) == COMMIT_PASSAGES:
                    yield from self._commit(batch, bar)
                    batch = []
        except Exception:
            yield from perform(feed.end)
            raise
        for item in waiting.values():
            item.failure = f"{type(extractor).__name__} passed over this passage"
        for part in _parts([*batch, *waiting.values()], BATCH_PASSAGES):
            yield from self._commit(part, bar)

    def _with_triplets(self, item: _Item, found: Extraction) -> _Item:
        self.report.usage += found.usage
        self.report.invalid += found.invalid
        item.failure = found.failure
        if found.failure is None:
            passage, invalid = prepare(item.node, found.triplets)
            self.report.invalid += invalid
            try:
                self.store.check(passage.row(()))
            except GraphRAGValueError as error:  # so many triplets that they do not fit
                item.failure = str(error)
            else:
                item.passage = passage
        return item

    def _commit(self, items: Sequence[_Item], bar: tqdm[NoReturn]) -> Process[None]:
        passages = [item.passage for item in items]
        if self.resolver is not None:
            resolved, aliases = yield from _threaded(resolve_passages, passages, self.resolver)
            self.report.aliases.update(aliases)
            passages = resolved
        rows: list[Passage] = []
        last: list[Passage] = []
        for item, passage in zip(items, passages):
            plan, failed = item.plan, item.failure is not None and not item.read
            plan.waiting -= 1
            plan.failed |= failed
            plan.recorded = not (plan.waiting or plan.failed or plan.gone) and bool(plan.hash)
            if failed and item.failure:
                document = item.node.ref_doc_id or ""
                self.report.failures.append(
                    ExtractionFailure(item.node.node_id, item.failure, document)
                )
            row = replace(
                passage,
                content_hash=UNREAD + item.hash if failed else item.hash,
                document_hash=plan.hash if plan.recorded else "",
            )
            (last if plan.recorded else rows).append(row)
        # What records a document's hash is written after all else of it.
        yield from self.writer.write_batch([*rows, *last], self.report)
        bar.update(len(items))

    def _bar(self) -> tqdm[NoReturn]:
        return progress_bar(0, "Indexing passages", show=self.show_progress)


def _warn_of_random_ids(documents: Iterable[Document | None]) -> None:
    """Say so if documents have random ids: another run could not recognise them."""
    count = sum(document is not None and is_random(document.id_) for document in documents)
    if count:
        logger.warning(
            "%d documents have random ids, so that another run takes them for new ones; give them "
            "ids of your own, for files with SimpleDirectoryReader(filename_as_id=True)",
            count,
        )


def _threaded(function: Callable[..., T], *args: object) -> Process[T]:
    """Call a function that may be slow: in a thread where the caller is async."""
    step = Step(lambda: function(*args), lambda: asyncio.to_thread(function, *args))
    return (yield from perform(step))


def _distinct(documents: Iterable[Document]) -> Iterator[Document | None]:
    """Yield documents, None in the place of one that came before with the same content."""
    seen: dict[str, str] = {}
    for document in documents:
        if not isinstance(document, Document):
            raise GraphRAGTypeError(
                f"documents hold a {type(document).__name__}; give Documents, and nodes to "
                "insert_nodes"
            )
        before = seen.get(document.id_)
        if before is not None and before != document.hash:
            raise GraphRAGValueError(
                f"document id {document.id_!r} is given twice with different content; give each "
                "document an id of its own"
            )
        seen[document.id_] = document.hash
        yield document if before is None else None


def _parts(items: Sequence[T], size: int) -> Iterator[list[T]]:
    for start in range(0, len(items), size):
        yield list(items[start : start + size])


def _sum(one: Estimate, other: Estimate) -> Estimate:
    money = None if one.money is None or other.money is None else one.money + other.money
    return Estimate(
        one.chunks + other.chunks,
        one.llm_calls + other.llm_calls,
        one.prompt_tokens + other.prompt_tokens,
        one.completion_tokens + other.completion_tokens,
        one.embedding_tokens + other.embedding_tokens,
        money,
    )
