"""Every error that this package raises on purpose, under one root."""

from __future__ import annotations


class GraphRAGError(Exception):
    """Root of the errors of this package; the message names value, limit and remedy.

    Examples
    --------
    >>> issubclass(GraphRAGValueError, GraphRAGError), issubclass(GraphRAGValueError, ValueError)
    (True, True)
    """


class GraphRAGValueError(GraphRAGError, ValueError):
    """An argument or a row has a value that cannot be used."""


class GraphRAGTypeError(GraphRAGError, TypeError):
    """An argument or a row has a type that cannot be used."""


class StoreError(GraphRAGError):
    """A store cannot be opened, read or written, or holds another kind of index."""


class MissingExtraError(GraphRAGError, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed; "
            f"install it with: pip install 'llama_index_graph_rag[{extra}]'"
        )
