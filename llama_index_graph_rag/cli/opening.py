"""Opening an index for a command, and its models."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_index_graph_rag.errors import GraphRAGValueError

if TYPE_CHECKING:
    from llama_index_graph_rag.index import GraphRAGIndex


def is_missing(uri: str) -> bool:
    """Return whether the URI is a Milvus Lite path at which there is nothing."""
    return "://" not in uri and uri.endswith(".db") and not Path(uri).expanduser().exists()


@contextmanager
def open_index(
    arguments: argparse.Namespace,
    *,
    with_model: bool = False,
    create: bool = False,
    **index_options: Any,
) -> Iterator[GraphRAGIndex]:
    """Open the index that the options name, and close it whatever happens.

    Parameters
    ----------
    arguments
        With `uri`, `token`, `prefix`; with a model also `embed_model`, `llm` and `api_base`.
    with_model
        Whether the command embeds: the model is that of the index, unless one is named.
    create
        Whether the index may not be there yet.
    **index_options
        As for GraphRAGIndex.

    Raises
    ------
    GraphRAGError
        If there is no such index, or the model is another than the one it was built with.
    """
    from llama_index_graph_rag.index import GraphRAGIndex
    from llama_index_graph_rag.models import LOCAL, embed_model_named
    from llama_index_graph_rag.stores.milvus import MilvusGraphStore

    remedy = f"build one with `llama-graph-rag index PATHS --uri {arguments.uri}`, or check --uri"
    if not create and is_missing(arguments.uri):
        raise GraphRAGValueError(f"there is no index at {arguments.uri}; {remedy}")
    store = MilvusGraphStore(
        arguments.uri, token=arguments.token, collection_prefix=arguments.prefix
    )
    try:
        if store.about is None and not create:
            raise GraphRAGValueError(
                f"{arguments.uri} holds no index under the prefix {arguments.prefix!r}; {remedy}, "
                "and --prefix"
            )
        model = None
        if with_model:
            name = arguments.embed_model or (store.about.embedding_model if store.about else LOCAL)
            model = embed_model_named(name, api_base=arguments.api_base)
        index = GraphRAGIndex(store, embed_model=model, **index_options)
        if with_model and store.about is not None:
            index.check_model()
        yield index
    finally:
        store.close()
