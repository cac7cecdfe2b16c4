"""Retrieval metrics of one question, from the ids retrieved and the gold ids."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def recall_at(k: int, retrieved: Sequence[str], gold: Collection[str]) -> float:
    """Return the share of the gold passages that are among the first `k` retrieved.

    Examples
    --------
    >>> recall_at(2, ["a", "x", "b"], {"a", "b"})
    0.5
    """
    return len(set(retrieved[:k]) & set(gold)) / len(set(gold))


def all_gold_at(k: int, retrieved: Sequence[str], gold: Collection[str]) -> float:
    """Return 1 if every gold passage is among the first `k` retrieved, else 0.

    Examples
    --------
    >>> all_gold_at(2, ["a", "x", "b"], {"a", "b"}), all_gold_at(3, ["a", "x", "b"], {"a", "b"})
    (0.0, 1.0)
    """
    return float(set(gold) <= set(retrieved[:k]))


def reciprocal_rank(retrieved: Sequence[str], gold: Collection[str]) -> float:
    """Return 1 / the rank of the first gold passage, 0 if none was retrieved.

    Examples
    --------
    >>> reciprocal_rank(["x", "a", "b"], {"a", "b"})
    0.5
    """
    return next((1 / rank for rank, id in enumerate(retrieved, 1) if id in gold), 0.0)
