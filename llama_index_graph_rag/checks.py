"""Arguments of the wrong kind, said when they are given and not when they are first used."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError


def whole_number(name: str, value: object, *, least: int = 1, most: int | None = None) -> int:
    """Return `value` as an int between `least` and `most`; numpy's integers will do.

    Raises
    ------
    GraphRAGValueError
        If it is no whole number, or out of range.

    Examples
    --------
    >>> whole_number("rerank_top_n", True)
    Traceback (most recent call last):
    ...
    llama_index_graph_rag.errors.GraphRAGValueError: rerank_top_n=True is not a whole number
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise GraphRAGValueError(f"{name}={value!r} is not a whole number")
    number = int(value)
    if most is not None and not least <= number <= most:
        raise GraphRAGValueError(f"{name}={number} is not between {least} and {most:,}")
    if number < least:
        raise GraphRAGValueError(f"{name}={number} must be at least {least}")
    return number


def cutoff(name: str, value: object) -> float | None:
    """Return `value` as a float, or None for no cutoff.

    Raises
    ------
    GraphRAGValueError
        If it is no number: above NaN there is nothing.

    Examples
    --------
    >>> cutoff("relation_similarity_cutoff", 0.5)
    0.5
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real) or value != value:
        raise GraphRAGValueError(f"{name}={value!r} is not a number; None counts all hits")
    return float(value)


def instance(name: str, value: object, kind: type[Any], remedy: str) -> None:
    """Raise GraphRAGTypeError unless `value` is None or of `kind`.

    Examples
    --------
    >>> instance("llm", "gpt-4o", int, "give an LLM object")
    Traceback (most recent call last):
    ...
    llama_index_graph_rag.errors.GraphRAGTypeError: llm='gpt-4o' is a str; give an LLM object
    """
    if value is not None and not isinstance(value, kind):
        raise GraphRAGTypeError(f"{name}={repr(value)[:80]} is a {type(value).__name__}; {remedy}")


EMBED_MODEL = "give an embedding model object, or set Settings.embed_model"
"""What to do where no BaseEmbedding is given."""
