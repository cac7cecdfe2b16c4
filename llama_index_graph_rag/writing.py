"""From passages with triplets to rows of a store: checked, embedded once, written in batches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, MetadataMode, NodeRelationship, TextNode

from llama_index_graph_rag.document_nodes import passage_hash
from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError
from llama_index_graph_rag.extractors.evidence import locate
from llama_index_graph_rag.extractors.llm_calls import LLMUsage
from llama_index_graph_rag.extractors.node_triplets import ExtractionFailure, strip_graph_metadata
from llama_index_graph_rag.identity import clean_text
from llama_index_graph_rag.progress import progress_bar
from llama_index_graph_rag.steps import Process, Step, call, gather, perform
from llama_index_graph_rag.stores.base import (
    Batch,
    EntityRow,
    GraphIndexStore,
    PassageRow,
    RelationRow,
    StaleBatchError,
)
from llama_index_graph_rag.triplets import InvalidTriplet, Mention, Triplet, unique_triplets

logger = logging.getLogger("llama_index_graph_rag")

PROBE_TEXT = "Leonhard Euler was a student of Johann Bernoulli."
"""The fixed text whose embedding tells one embedding model from another."""
BATCH_PASSAGES = 128
"""Passages that are read by an LLM before they are committed: what a broken run loses at most."""
WRITE_PASSAGES = 512
"""Passages that are ready and committed at once: each commit has a price."""
MAX_ATTEMPTS = 10
"""Times that a batch is written anew because others delete what it relies on."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage that is ready to be embedded and written."""

    node: TextNode
    mentions: tuple[Mention, ...]
    relation_ids: tuple[str, ...]
    content_hash: str
    document_hash: str
    embedding: list[float] | None = None

    @property
    def text(self) -> str:
        """What is embedded: the text with the metadata that an embedder may see."""
        return self.node.get_content(metadata_mode=MetadataMode.EMBED)

    def row(self, embedding: Sequence[float]) -> PassageRow:
        """Return the row to write."""
        return PassageRow(
            node=self.node,
            embedding=embedding,
            relation_ids=self.relation_ids,
            mentions=self.mentions,
            content_hash=self.content_hash,
            document_hash=self.document_hash,
        )


@dataclass(slots=True)
class WriteReport:
    """What came of a write.

    Attributes
    ----------
    written, unchanged
        Passages written, and passages that were there already with the same content.
    embedded
        Texts that were embedded.
    invalid
        Triplets left out, with the reason.
    deleted
        Passages that were deleted since their document has them no more.
    reused
        Passages written anew with the triplets that they had, without an LLM.
    empty
        Passages without text, which are not stored.
    failures
        Passages stored without triplets since reading them failed; the next run reads them again.
    aliases
        Names that the entity resolver replaced.
    usage
        Calls and tokens of the LLM.
    """

    written: int = 0
    unchanged: int = 0
    embedded: int = 0
    invalid: list[InvalidTriplet] = field(default_factory=list)
    deleted: int = 0
    reused: int = 0
    empty: int = 0
    failures: list[ExtractionFailure] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    usage: LLMUsage = field(default_factory=LLMUsage)


def prepare(
    node: BaseNode, triplets: Sequence[object], *, document_hash: str = ""
) -> tuple[Passage, list[InvalidTriplet]]:
    """Return a passage ready to be embedded, and the triplets that were left out.

    The node is copied: graph metadata and embedding are taken off the copy.

    Raises
    ------
    GraphRAGTypeError
        If the node holds no text, or a triplet is not three strings.
    GraphRAGValueError
        If a triplet part is too long, or the node's templates or metadata cannot be written out.
    """
    if not isinstance(node, BaseNode):
        raise GraphRAGTypeError(
            f"{repr(node)[:80]} is a {type(node).__name__}, not a node; give TextNodes"
        )
    try:
        valid, invalid = unique_triplets(triplets)
    except (GraphRAGTypeError, GraphRAGValueError) as error:
        raise type(error)(f"node {node.node_id!r}: {error}") from error
    source = strip_graph_metadata(node)
    try:
        hash = passage_hash(source, valid)
        copy = _text_node(source)
        copy.get_content(metadata_mode=MetadataMode.EMBED)
    except (LookupError, RecursionError, TypeError, ValueError) as error:
        raise GraphRAGValueError(
            f"node {node.node_id!r} cannot be written out ({error!r:.100}); check its "
            "text_template and metadata_template, and that its metadata is plain data, not nested "
            "deeply"
        ) from error
    embedding = copy.embedding
    copy.embedding = None
    mentions = tuple(locate(copy.text, valid)) if valid else ()
    passage = Passage(
        node=copy,
        mentions=mentions,
        relation_ids=tuple(mention.triplet.id for mention in mentions),
        content_hash=hash,
        document_hash=document_hash,
        embedding=embedding,
    )
    return passage, invalid


def prepare_all(
    nodes: Sequence[BaseNode], triplets: Sequence[Sequence[object]]
) -> tuple[list[Passage], list[InvalidTriplet]]:
    """Prepare nodes side by side with their triplets, each id once.

    Raises
    ------
    GraphRAGValueError
        If the lengths differ, or one id stands for two contents.
    """
    nodes, triplets = list(nodes), list(triplets)  # generators will do
    if len(nodes) != len(triplets):
        raise GraphRAGValueError(
            f"{len(nodes)} nodes but {len(triplets)} lists of triplets; triplets[i] are those of "
            "nodes[i], an empty list where there are none"
        )
    passages: dict[str, Passage] = {}
    invalid: list[InvalidTriplet] = []
    for node, of_node in zip(nodes, triplets):
        if isinstance(of_node, (str, bytes)) or not isinstance(of_node, Sequence):
            raise GraphRAGTypeError(
                f"the triplets of node {node.node_id!r} are a {type(of_node).__name__}, "
                "not a list of (subject, predicate, object)"
            )
        passage, left_out = prepare(node, of_node)
        invalid += left_out
        known = passages.setdefault(passage.node.node_id, passage)
        if known.content_hash != passage.content_hash:
            raise GraphRAGValueError(
                f"node id {passage.node.node_id!r} is given twice with different content; "
                "give each passage an id of its own"
            )
    return list(passages.values()), invalid


@dataclass(slots=True)
class Writer:
    """Embeds what a store does not hold yet, with `workers` calls in flight, and writes it.

    `check_model` says whether it is still to be found out that an index which exists was built
    with this model; that costs one embedding.
    """

    store: GraphIndexStore
    embed_model: Callable[[], BaseEmbedding]
    workers: int = 1
    check_model: bool = False

    def write(
        self,
        passages: Sequence[Passage],
        report: WriteReport,
        *,
        show_progress: bool = False,
    ) -> Process[None]:
        """Write passages in batches; each batch commits, so that a new start skips it.

        All are checked before anything is created or written.
        """
        yield from call(self.store.refresh, self.store.arefresh)
        snapshot = self.store.snapshot()
        known = snapshot.content_hashes([passage.node.node_id for passage in passages])
        fresh = [
            passage
            for passage, content_hash in zip(passages, known)
            if content_hash != passage.content_hash
            or (
                passage.document_hash
                and snapshot.document_hash(passage.node.ref_doc_id or "") != passage.document_hash
            )
        ]
        report.unchanged += len(passages) - len(fresh)
        for passage in fresh:
            self.store.check(passage.row(()))
        yield from self.begin(fresh)
        bar = progress_bar(len(fresh), "Indexing passages", show=show_progress)
        with bar:
            for batch in _batches(fresh):
                yield from self.write_batch(batch, report)
                bar.update(len(batch))

    def begin(self, passages: Sequence[Passage]) -> Process[None]:
        """Check the embeddings that passages bring and the model, then create a missing index.

        Raises
        ------
        GraphRAGValueError
            If an embedding is of another length, or holds a NaN or an infinity.
        StoreError
            If the index was built with another model.
        """
        if self.store.dimension and not self.check_model:
            _check_embeddings(passages, self.store.dimension)
            return
        model = self.embed_model()
        probe = yield from call(model.get_text_embedding, model.aget_text_embedding, PROBE_TEXT)
        _check_embeddings(passages, self.store.dimension or len(probe))
        yield from call(
            self.store.create,
            self.store.acreate,
            len(probe),
            embedding_model=model.model_name,
            probe=probe,
        )
        self.check_model = False

    def write_batch(self, batch: Sequence[Passage], report: WriteReport) -> Process[None]:
        """Write passages as they are in one commit, known or not; see `write`."""
        first: dict[str, Triplet] = {}
        names: dict[str, str] = {}
        texts = [passage.text if passage.embedding is None else "" for passage in batch]
        for passage in batch:
            for id, mention in zip(passage.relation_ids, passage.mentions):
                if id not in first:
                    triplet = first[id] = mention.triplet
                    names.setdefault(triplet.subject_id, triplet.subject)
                    names.setdefault(triplet.object_id, triplet.object)
        embeddings: dict[str, Sequence[float]] = {}
        for attempt in range(MAX_ATTEMPTS):
            missing = yield from call(
                self.store.missing, self.store.amissing, entities=list(names), relations=list(first)
            )
            entities = [id for id in names if id in missing[0]]
            relations = [id for id in first if id in missing[1]]
            facts = [first[id].text for id in relations]
            own = [text for text, passage in zip(texts, batch) if passage.embedding is None]
            asked = dict.fromkeys([*(names[id] for id in entities), *facts, *own])
            wanted = [text for text in asked if text not in embeddings]
            if wanted:
                vectors = yield from self.embed(wanted)
                report.embedded += len(wanted)
                embeddings.update(zip(wanted, vectors))
            rows = Batch(
                entities=[EntityRow(id, names[id], embeddings[names[id]]) for id in entities],
                relations=[
                    RelationRow(
                        id,
                        first[id].subject_id,
                        first[id].object_id,
                        *first[id],
                        embedding=embeddings[fact],
                    )
                    for id, fact in zip(relations, facts)
                ],
                passages=[
                    passage.row(
                        embeddings[text] if passage.embedding is None else passage.embedding
                    )
                    for passage, text in zip(batch, texts)
                ],
            )
            try:
                yield from call(self.store.upsert, self.store.aupsert, rows)
            except StaleBatchError as error:
                # Another thread deleted what this batch relies on while it was being embedded.
                if attempt == MAX_ATTEMPTS - 1:
                    raise
                logger.debug("%s; embedding what is missing now", error)
                continue
            report.written += len(batch)
            return

    def embed(self, texts: list[str]) -> Process[list[list[float]]]:
        """Return the embedding of each text."""
        model = self.embed_model()
        size = model.embed_batch_size
        found = yield from perform(
            gather(
                [_embedding(model, texts[at : at + size]) for at in range(0, len(texts), size)],
                workers=self.workers,
            )
        )
        vectors = [vector for part in found for vector in part]
        if len(vectors) != len(texts):
            raise GraphRAGValueError(
                f"the embedding model {model.model_name!r} returned {len(vectors)} vectors for "
                f"{len(texts)} texts; use a model that returns one each"
            )
        if not all(len(vector) for vector in vectors):
            raise GraphRAGValueError(
                f"the embedding model {model.model_name!r} returned no vector for some texts; try "
                "again, or use another model"
            )
        return [vector if isinstance(vector, list) else list(vector) for vector in vectors]


def _embedding(model: BaseEmbedding, texts: list[str]) -> Step[list[list[float]]]:
    return Step(
        lambda: model.get_text_embedding_batch(texts),
        lambda: model.aget_text_embedding_batch(texts),
    )


def _check_embeddings(passages: Sequence[Passage], dimension: int) -> None:
    for passage in passages:
        if passage.embedding is None:
            continue
        remedy = "set node.embedding = None to have it embedded"
        if len(passage.embedding) != dimension:
            raise GraphRAGValueError(
                f"node {passage.node.node_id!r} brings an embedding of {len(passage.embedding)} "
                f"dimensions, the index has {dimension}; {remedy}"
            )
        if not all(map(isfinite, passage.embedding)):
            raise GraphRAGValueError(
                f"node {passage.node.node_id!r} brings an embedding that holds a NaN or an "
                f"infinity; {remedy}"
            )


def _batches(passages: Sequence[Passage]) -> Iterator[Sequence[Passage]]:
    for start in range(0, len(passages), WRITE_PASSAGES):
        yield passages[start : start + WRITE_PASSAGES]


def _text_node(node: BaseNode) -> TextNode:
    metadata = _cleaned(node.metadata)
    if metadata != node.metadata:
        logger.warning("node %r: lone surrogates in its metadata were replaced", node.node_id)
        node.metadata = metadata
    if isinstance(node, TextNode):
        if node.text != clean_text(node.text):
            logger.warning("node %r: lone surrogates in its text were replaced", node.node_id)
            node.set_content(clean_text(node.text))
        return node
    text = node.get_content(metadata_mode=MetadataMode.NONE)
    if not isinstance(text, str):
        raise GraphRAGTypeError(
            f"node {node.node_id!r} is a {type(node).__name__} without text; give TextNodes"
        )
    return TextNode(
        id_=node.node_id,
        text=clean_text(text),
        metadata=node.metadata,
        excluded_embed_metadata_keys=node.excluded_embed_metadata_keys,
        excluded_llm_metadata_keys=node.excluded_llm_metadata_keys,
        relationships={
            kind: related
            for kind, related in node.relationships.items()
            if kind != NodeRelationship.CHILD
        },
        embedding=node.embedding,
    )


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    return [_cleaned(item) for item in value] if isinstance(value, list) else value
