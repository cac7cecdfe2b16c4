"""Milvus filter expressions: ids and LlamaIndex metadata filters, every value quoted."""

from __future__ import annotations

import math
from collections.abc import Sequence

from llama_index.core.vector_stores import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_index_graph_rag.errors import GraphRAGValueError

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_FIXED_FIELDS = {"id", "doc_id", "text"}
_COMPARISONS = {
    FilterOperator.EQ: "==",
    FilterOperator.GT: ">",
    FilterOperator.GTE: ">=",
    FilterOperator.LT: "<",
    FilterOperator.LTE: "<=",
}


def quote(text: str) -> str:
    r"""Return `text` as a string literal of Milvus; other control characters may stand as is.

    Examples
    --------
    >>> quote('a"b')
    '"a\\"b"'
    """
    return f'"{text.translate(_ESCAPES)}"'


def ids_expression(ids: Sequence[str], field: str = "id") -> str:
    """Return the expression that holds for rows whose `field` is one of `ids`."""
    return f"{field} in [{', '.join(map(quote, ids))}]"


def filters_expression(filters: MetadataFilters) -> str | None:
    """Return `filters` as an expression, or None where Milvus would answer differently.

    Only what means the same in Milvus and in LlamaIndex is translated: comparisons, IN and NIN
    with strings, numbers and booleans, under AND, OR and NOT.

    Examples
    --------
    >>> from llama_index.core.vector_stores import MetadataFilter, MetadataFilters
    >>> filters_expression(MetadataFilters(filters=[MetadataFilter(key="year", value=1738)]))
    '($meta["year"] == 1738)'
    """
    parts = []
    for item in filters.filters:
        part = filters_expression(item) if isinstance(item, MetadataFilters) else _expression(item)
        if part is None:
            return None
        parts.append(part)
    if not parts:
        return None
    if filters.condition == FilterCondition.OR:
        return f"({' or '.join(parts)})"
    if filters.condition == FilterCondition.NOT:
        return f"(not ({' or '.join(parts)}))"
    return f"({' and '.join(parts)})"


def _expression(item: MetadataFilter) -> str | None:
    values = item.value if isinstance(item.value, list) else [item.value]
    literals = [_literal(value) for value in values]
    if not literals or any(literal is None for literal in literals):
        return None
    fixed = item.key in _FIXED_FIELDS
    field = item.key if fixed else f"$meta[{quote(item.key)}]"
    equal = " or ".join(f"{field} == {literal}" for literal in literals)
    # LlamaIndex lets a passage without the key pass NE and NIN; Milvus needs to be told.
    differs = f"(not ({equal}))" if fixed else f"((not exists {field}) or not ({equal}))"
    if isinstance(item.value, list):
        if item.operator == FilterOperator.IN:
            return f"({equal})"
        return differs if item.operator == FilterOperator.NIN else None
    if item.operator == FilterOperator.NE:
        return differs
    comparison = _COMPARISONS.get(item.operator)
    return f"{field} {comparison} {literals[0]}" if comparison else None


def _literal(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    return None


def passes(filters: MetadataFilters, metadata: dict[str, object]) -> bool:
    """Return whether `metadata` passes `filters`, nested ones included, as LlamaIndex decides.

    Raises
    ------
    GraphRAGValueError
        If a filter compares values of kinds that have no order or containment.
    """
    from llama_index.core.vector_stores.utils import build_metadata_filter_fn

    results = []
    for item in filters.filters:
        if isinstance(item, MetadataFilters):
            results.append(passes(item, metadata))
            continue
        single = MetadataFilters(filters=[item])
        try:
            results.append(build_metadata_filter_fn(lambda _: metadata, single)(""))
        except TypeError as error:
            raise GraphRAGValueError(
                f"the filter on {item.key!r} ({item.operator.value} {item.value!r}) does not fit "
                f"the stored value {metadata.get(item.key)!r}: {error}"
            ) from error
    if not results:
        return True
    if filters.condition == FilterCondition.OR:
        return any(results)
    if filters.condition == FilterCondition.NOT:
        return not any(results)
    return all(results)
