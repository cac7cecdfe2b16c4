"""Milvus filter expressions: ids and LlamaIndex metadata filters, every value quoted."""

from __future__ import annotations

import math
import operator as operators
import re
from collections.abc import Callable, Sequence

from llama_index.core.vector_stores import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_index_graph_rag.errors import GraphRAGValueError

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})
# Not metadata of the passage, though fields of the row have these names.
_OWN_FIELDS = frozenset(
    {"id", "text", "embedding", "relation_ids", "mentions", "content_hash", "document_hash"}
)
# Other keys are read differently inside a JSON path by one release or another.
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_ -]+")
_MAX_EXACT = 2**53
_COMPARE: dict[FilterOperator, Callable[[float, float], bool]] = {
    FilterOperator.EQ: operators.eq,
    FilterOperator.GT: operators.gt,
    FilterOperator.GTE: operators.ge,
    FilterOperator.LT: operators.lt,
    FilterOperator.LTE: operators.le,
}
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
    '(((exists $meta["year"]) and ($meta["year"] == 1738)))'
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
    key, operator = item.key, item.operator
    if key in _OWN_FIELDS or key.startswith("_node_") or not _PLAIN_KEY.fullmatch(key):
        return None
    column = key == "doc_id"
    field = key if column else f"$meta[{quote(key)}]"
    values = item.value if isinstance(item.value, list) else [item.value]
    if not values or any(_literal(value) is None for value in values):
        return None
    if column and not all(isinstance(value, str) for value in values):
        return None
    if operator in (FilterOperator.IN, FilterOperator.NIN):
        if not isinstance(item.value, list):
            return None
        operator = FilterOperator.EQ if operator == FilterOperator.IN else FilterOperator.NE
    elif isinstance(item.value, list):
        return None
    # What is compared with a key that is not there is neither true nor false to Milvus, and its
    # negation neither; to LlamaIndex it is false, and passes NE and NIN.
    there = "" if column else f"(exists {field}) and "
    if operator == FilterOperator.NE:
        return f"(not ({there}{_any_of(field, FilterOperator.EQ, values)}))"
    if operator not in _COMPARISONS:
        return None
    return f"({there}{_any_of(field, operator, values)})"


def _any_of(field: str, operator: FilterOperator, values: Sequence[object]) -> str:
    tests = [f"{field} {_COMPARISONS[operator]} {_literal(value)}" for value in values]
    for value in values:
        if isinstance(value, (int, float)):
            # To LlamaIndex True is 1 and False is 0.
            tests += [
                f"{field} == {name}"
                for name, number in (("true", 1), ("false", 0))
                if _COMPARE[operator](number, value)
            ]
    return f"({' or '.join(dict.fromkeys(tests))})"


def _literal(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, int):
        return repr(value) if abs(value) <= _MAX_EXACT else None
    return repr(value) if isinstance(value, float) and math.isfinite(value) else None


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
