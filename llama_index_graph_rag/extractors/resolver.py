"""Entities that are one: a hook that renames, and a proposer of merges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rapidfuzz import fuzz

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.identity import canonical_name
from llama_index_graph_rag.triplets import Triplet

_WINDOW = 4
_TABLES = 6
_ROMAN = frozenset(["i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii"])


class EntityResolver(Protocol):
    """Any callable from entity names to the names that replace them; absent ones stay.

    Examples
    --------
    >>> def resolver(names):
    ...     return {name: "Leonhard Euler" for name in names if name == "L. Euler"}
    >>> resolve_triplets([Triplet("L. Euler", "lived in", "Basel")], resolver)[0]
    [Triplet(subject='Leonhard Euler', predicate='lived in', object='Basel')]
    """

    def __call__(self, names: Sequence[str], /) -> Mapping[str, str]:
        """Return replacements for some of `names`."""


@dataclass(frozen=True, slots=True)
class MergeProposal:
    """Two names that may be one entity.

    Attributes
    ----------
    alias, name
        The rarer name, and the one that would replace it.
    string_similarity
        In [0, 1]; 1 for the same words in another order.
    embedding_similarity
        Cosine, or None where no embeddings were given.
    """

    alias: str
    name: str
    string_similarity: float
    embedding_similarity: float | None


def resolve_triplets(
    triplets: Sequence[Triplet], resolver: EntityResolver
) -> tuple[list[Triplet], dict[str, str]]:
    """Return `triplets` with entities renamed by `resolver`, and the aliases used.

    Aliases are the names as they stood, each with its replacement: what to record.

    Raises
    ------
    GraphRAGValueError
        If a replacement has an empty canonical name.
    """
    names = list(dict.fromkeys(name for t in triplets for name in (t.subject, t.object)))
    replaced = dict(resolver(names)) if names else {}
    for name, replacement in replaced.items():
        if not canonical_name(replacement):
            raise GraphRAGValueError(
                f"the resolver replaces {name!r} by {replacement!r}, which is no name; "
                "return only names with a letter or a digit"
            )
    aliases = {name: replaced[name] for name in names if replaced.get(name, name) != name}
    return [
        Triplet(aliases.get(t.subject, t.subject), t.predicate, aliases.get(t.object, t.object))
        for t in triplets
    ], aliases


def propose_merges(
    names: Sequence[str],
    *,
    embeddings: ArrayLike | None = None,
    counts: Mapping[str, int] | None = None,
    min_string_similarity: float = 0.85,
    min_embedding_similarity: float = 0.85,
    max_block: int = 50,
) -> list[MergeProposal]:
    """Propose pairs of names that may be one entity, by spelling and by embedding. Merges nothing.

    Only names that share a block are compared: a word (of at most `max_block` names), a
    neighbourhood in alphabetical order (sorted-neighbourhood method, Hernández and Stolfo 1995) or
    a bucket of random hyperplanes (Charikar 2002). So the work grows with the number of names, not
    with its square. Names with different numbers (1984 and 1985, World War I and II) are never
    proposed. Each name is proposed at most once, for a name that it is near itself: no chains.

    Parameters
    ----------
    names
        Entity names; n of them.
    embeddings
        Shape (n, d), in their order; without it spelling alone decides.
    counts
        How often each name is used; the more used of two stays. Default: the first one.
    min_string_similarity, min_embedding_similarity
        Both must be reached, in [0, 1].
    max_block
        Names of one block that are compared with each other; words and buckets of more are split
        in order.

    Raises
    ------
    GraphRAGValueError
        If the embeddings are not one for each name, or a limit is out of range.

    Examples
    --------
    >>> [p] = propose_merges(["Leonhard Euler", "Euler, Leonhard", "Basel"])
    >>> p.alias, p.name, p.string_similarity
    ('Euler, Leonhard', 'Leonhard Euler', 1.0)
    """
    for limit in (min_string_similarity, min_embedding_similarity):
        if not 0 <= limit <= 1:
            raise GraphRAGValueError(f"a similarity limit of {limit} is not in [0, 1]")
    if max_block < 2:
        raise GraphRAGValueError(f"max_block={max_block} must be at least 2")
    vectors = None if embeddings is None else _unit(embeddings, len(names))
    canonical = [canonical_name(name) for name in names]
    words = [_words(name) for name in canonical]
    ordered = [" ".join(sorted(item)) for item in words]
    near: dict[int, dict[int, tuple[float, float | None]]] = defaultdict(dict)
    for left, right in _candidates(words, ordered, vectors, max_block):
        if canonical[left] == canonical[right] or not (ordered[left] and ordered[right]):
            continue  # one entity already, or no name
        if _numbers(words[left]) != _numbers(words[right]):
            continue
        spelling = fuzz.ratio(ordered[left], ordered[right]) / 100
        if spelling < min_string_similarity:
            continue
        cosine = None if vectors is None else float(vectors[left] @ vectors[right])
        if cosine is not None and cosine < min_embedding_similarity:
            continue
        near[left][right] = near[right][left] = (spelling, cosine)
    uses = counts or {}
    rank = sorted(near, key=lambda row: (-uses.get(names[row], 0), row))
    proposals = []
    taken: set[int] = set()
    for row in rank:
        if row in taken:
            continue
        taken.add(row)
        for other, (spelling, cosine) in sorted(near[row].items()):
            if other not in taken:
                taken.add(other)
                proposals.append(MergeProposal(names[other], names[row], spelling, cosine))
    return sorted(proposals, key=lambda p: (-p.string_similarity, p.name, p.alias))


def resolver_from(
    proposals: Iterable[MergeProposal], *, accept: Callable[[MergeProposal], bool]
) -> EntityResolver:
    """Return a resolver that applies the proposals that `accept` says yes to, and no others.

    Examples
    --------
    >>> proposal = MergeProposal("L Euler", "Euler", 0.9, None)
    >>> resolver_from([proposal], accept=lambda p: True)(["l. euler", "L Euler"])
    {'L Euler': 'Euler'}
    """
    accepted = {canonical_name(p.alias): p.name for p in proposals if accept(p)}

    def resolver(names: Sequence[str], /) -> Mapping[str, str]:
        pairs = ((name, accepted.get(canonical_name(name))) for name in names)
        return {name: replacement for name, replacement in pairs if replacement is not None}

    return resolver


def _unit(embeddings: ArrayLike, count: int) -> NDArray[np.float32]:
    matrix = np.asarray(embeddings, dtype=np.float32)
    if matrix.ndim != 2 or len(matrix) != count:
        raise GraphRAGValueError(
            f"embeddings of shape {matrix.shape} do not fit {count} names; give one row for each"
        )
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return (matrix / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _words(canonical: str) -> tuple[str, ...]:
    return tuple(word.strip(".,;()'\"") for word in canonical.split())


def _numbers(words: Sequence[str]) -> frozenset[str]:
    return frozenset(w for w in words if w in _ROMAN or any(c.isdigit() for c in w))


def _candidates(
    words: Sequence[tuple[str, ...]],
    ordered: Sequence[str],
    vectors: NDArray[np.float32] | None,
    max_block: int,
) -> Iterator[tuple[int, int]]:
    blocks: dict[object, list[int]] = defaultdict(list)
    for row, parts in enumerate(words):
        for part in set(parts):
            blocks[part].append(row)
    if vectors is not None:
        random = np.random.default_rng(0)
        bits = max(1, int(np.log2(max(len(words) / max_block, 2))) + 1)
        for table in range(_TABLES):
            planes = random.standard_normal((vectors.shape[1], bits), dtype=np.float32)
            codes = np.packbits(vectors @ planes > 0, axis=1)
            for row, code in enumerate(codes):
                blocks[table, code.tobytes()].append(row)
    # A pair may come up in several blocks; comparing it again is cheaper than remembering them all.
    for block in blocks.values():
        for start in range(0, len(block), max_block):
            yield from combinations(block[start : start + max_block], 2)
    for key in (lambda row: ordered[row], lambda row: ordered[row][::-1]):
        alphabetical = sorted(range(len(words)), key=key)
        for at, row in enumerate(alphabetical):
            for other in alphabetical[at + 1 : at + 1 + _WINDOW]:
                yield min(row, other), max(row, other)
