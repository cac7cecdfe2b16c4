"""Which relations an LLM chose: its answer read, checked against the list and settled."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from llama_index_graph_rag.identity import canonical_name
from llama_index_graph_rag.llm_output import JSON, as_integer, as_items, find

RELATION_KEYS = (
    "relations",
    "chosen_relations",
    "selected_relations",
    "useful_relations",
    "facts",
    "chosen",
    "selected",
    "choices",
    "labels",
    "ids",
    "answer",
    "result",
)
REASONING_KEYS = ("reasoning", "thought_process", "thoughts", "explanation", "reason", "rationale")
_LABEL_KEYS = ("label", "id", "number", "index", "no", "relation_id", "fact_id", "key")
_TEXT_KEYS = ("text", "echo", "relation", "fact", "statement", "content", "value")
_MARKED = re.compile(
    r"\s*[\[(#\u3010]?\s*([-\u2212]?\d+)\s*(?:[\])}:.,\u3001\u3011\uff1a-]+\s*|$)(.*)", re.S
)
_LIKENESS = 0.8
_SHORT = 8


@dataclass(frozen=True, slots=True)
class RelationChoice:
    """Which of the candidates are needed for the question.

    Attributes
    ----------
    indices
        Places in the list of candidates, best first, each once. Empty where `reason` says why.
    reasoning
        The LLM's own words.
    raw
        Its answer as it came.
    dropped
        What was left out of the prompt or of the answer, with the reason, in order.
    reason
        Why nothing was chosen; empty if something was.
    llm_calls, prompt_tokens, completion_tokens
        What it cost; one call is normal, and tokens are 0 where the LLM does not report them.
    """

    indices: tuple[int, ...] = ()
    reasoning: str = ""
    raw: str = ""
    dropped: tuple[str, ...] = ()
    reason: str = ""
    llm_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


def reasoning_of(value: JSON) -> str:
    """Return the reasoning in an answer, empty if it has none."""
    found = find(value, *REASONING_KEYS) if isinstance(value, dict) else None
    return found if isinstance(found, str) else " ".join(map(str, as_items(found)))


def read_choice(
    value: JSON, shown: Sequence[str], *, limit: int | None = None
) -> tuple[list[int], list[str]]:
    """Return the places in `shown` that an answer chooses, and what of it was dropped and why.

    Labels count from 1. Where label and text disagree the text decides: equal to a shown one after
    canonical folding, or the nearest by `difflib` if it is at least 0.8 alike; like none of
    them, it is invented and dropped.

    Parameters
    ----------
    value
        The answer, decoded.
    shown
        The relations' texts as they were numbered.
    limit
        How many are taken at most. Default None: all.

    Examples
    --------
    >>> shown = ["Euler lived in Basel", "Euler was taught by Johann"]
    >>> read_choice({"relations": [{"label": 1, "text": "Euler was taught by Johann"}, 7]}, shown)
    ([1], ['7 is none of the 2 relations shown'])
    """
    folded = [canonical_name(text) for text in shown]
    chosen: list[int] = []
    dropped: list[str] = []
    for item in _items(value):
        label, text = _label_and_text(item, folded)
        place = _settle(label, text, folded)
        name = " ".join(filter(None, [None if label is None else str(label), text and repr(text)]))
        if place is None:
            dropped.append(
                f"{(name or repr(item))[:120]} is none of the {len(shown)} relations shown"
            )
        elif place in chosen:
            dropped.append(f"{name[:120]} was chosen twice")
        elif limit is not None and len(chosen) == limit:
            dropped.append(f"{name[:120]} is beyond the {limit} relations asked for")
        else:
            chosen.append(place)
    return chosen, dropped


def _items(value: JSON) -> list[JSON]:
    if isinstance(value, dict) and find(value, *RELATION_KEYS) is not None:
        value = find(value, *RELATION_KEYS)
    if isinstance(value, dict) and find(value, *_LABEL_KEYS, *_TEXT_KEYS) is None:
        # {"3": "text", "1": "text"}; a dict without such keys chooses nothing.
        return [{"label": key, "text": text} for key, text in value.items() if _is_number(key)]
    return as_items(value)


def _label_and_text(item: JSON, folded: Sequence[str]) -> tuple[int | None, str]:
    if isinstance(item, list) and len(item) == 2:
        item = {"label": item[0], "text": item[1]}
    if isinstance(item, dict) and len(item) == 1 and _is_number(next(iter(item))):
        [(key, text)] = item.items()
        item = {"label": key, "text": text}
    if isinstance(item, dict):
        _, text = _split(find(item, *_TEXT_KEYS), folded)
        label, other = _split(find(item, *_LABEL_KEYS), folded)
        return label, text or other
    return _split(item, folded)


def _split(value: JSON, folded: Sequence[str]) -> tuple[int | None, str]:
    """Return label and text of "[3] text", "3" or "text"."""
    if not isinstance(value, str):
        return as_integer(value), ""
    marked = None if canonical_name(value) in folded else _MARKED.fullmatch(value)
    return (as_integer(marked[1]), marked[2].strip()) if marked else (None, value.strip())


def _settle(label: int | None, text: str, folded: Sequence[str]) -> int | None:
    place = None if label is None or not 1 <= label <= len(folded) else label - 1
    wanted = canonical_name(text)
    if not wanted:
        return place
    if place is not None and (
        wanted == folded[place] or (len(wanted) >= _SHORT and folded[place].startswith(wanted))
    ):
        return place
    if wanted in folded:
        return folded.index(wanted)
    matcher = SequenceMatcher(b=wanted, autojunk=False)
    best, best_likeness = None, (_LIKENESS, False)
    for other, candidate in enumerate(folded):
        matcher.set_seq1(candidate)
        if min(matcher.real_quick_ratio(), matcher.quick_ratio()) < best_likeness[0]:
            continue
        likeness = (matcher.ratio(), other == place)
        if likeness > best_likeness or (best is None and likeness == best_likeness):
            best, best_likeness = other, likeness
    return best


def _is_number(key: object) -> bool:
    return isinstance(key, str) and as_integer(key) is not None
