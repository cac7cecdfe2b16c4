"""What commands print: passages, counts, JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llama_index.core.schema import NodeWithScore


EXCERPT = 500
"""Characters shown of a passage."""


def print_json(value: object) -> None:
    """Print a value as indented JSON, every script as it is."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def print_counts(counts: Mapping[str, float | None], *, as_json: bool) -> None:
    """Print names and numbers; to people only those that are known."""
    if as_json:
        print_json(dict(counts))
        return
    for name, count in counts.items():
        if count is not None:
            print(f"{name.replace('_', ' '):>22} {count:,}")


def print_passages(
    nodes: Sequence[NodeWithScore],
    relations: Sequence[Sequence[str]] = (),
    *,
    sources: Sequence[str] = (),
    whole: bool = False,
) -> None:
    """Print passages, and below each where it is from and the relations that led there.

    Of a long one the beginning, unless `whole`.
    """
    for place, node in enumerate(nodes):
        length = len(node.text) if whole else EXCERPT
        text = textwrap.shorten(node.text, length, placeholder=" ...")
        print(textwrap.indent(textwrap.fill(f"{place + 1}. {text}", 92), "  "))
        if place < len(sources):
            print(f"       from: {sources[place]}")
        for text in relations[place] if place < len(relations) else ():
            print(f"       by: {text}")
    print()
