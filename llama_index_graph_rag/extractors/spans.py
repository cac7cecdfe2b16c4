"""Where words and names begin and end in a canonical text, in any script."""

from __future__ import annotations

import re
import unicodedata

from llama_index_graph_rag.identity import canonical_name

_FUNCTION_WORDS = """
a about after again against all also am an and another any are as at away be became because been
before being between both but by can could d das de der des did die do does doing done du during
each either el else en et every few first for from further get had has have having he her here
hers him his how i if in into is it its just la las last le least les less ll los m many may me
might more most much must my name neither no nor not now of off on once one only or other our out
over own re s same she should so some such t than that the their them then there these they this
those through to too two und under until up upon us use used ve very von was we were what when
where whether which while who whom whose why will with within without would y yet you your
"""
STOP_WORDS = frozenset(_FUNCTION_WORDS.split())
"""Function words: never found alone, unless written with a capital within a sentence."""

# Written without spaces, so that a name can end anywhere: Han, hiragana, Thai, Lao, Myanmar,
# Khmer, Tibetan.
_UNSPACED = re.compile(
    "[\u3005-\u3007\u3040-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff]"
)
_KATAKANA = re.compile("[\u30a1-\u30fa\u30fc-\u30ff]")
# Particles follow a Korean name without a space.
_HANGUL = re.compile("[\uac00-\ud7a3]")
# All but white space and punctuation: marks of any script belong to their word.
WORD = re.compile(
    r"[^\s!-/:-@\[-`{-~\u00a1-\u00bf\u00d7\u00f7\u2000-\u200b\u200e-\u206f"
    r"\u3000-\u3004\u3008-\u3020\u30fb]+"
)


def capitalised(question: str, stop_words: frozenset[str]) -> frozenset[str]:
    """Return the canonical words that are written with a capital for another reason than place."""
    words = WORD.findall(question)
    if question.upper() == question:
        return frozenset()
    found = [canonical_name(word) for word in words if word[0].isupper()]
    if words and words[0][0].isupper() and found[0] in stop_words:
        found = found[1:]
    return frozenset(found)


def is_apart(text: str, start: int, end: int) -> bool:
    """Tell whether a match stands by itself: not inside a word, a number or a symbol like C++."""
    if end - start == 1 and _UNSPACED.match(text[start]):
        return not (text[start - 1 : start].isalnum() or text[end : end + 1].isalnum())
    if end - start > 1 and _HANGUL.match(text[end - 1]) and not _is_mark(text[end : end + 1]):
        return not _is_joint(text, start)
    return not (_is_joint(text, start) or _is_joint(text, end))


def _is_joint(text: str, at: int) -> bool:
    """Tell whether what stands before and after this place belongs together."""
    if not 0 < at < len(text):
        return False
    left, right = text[at - 1], text[at]
    if _is_mark(right) or left == "\u200d":
        return True
    if right in "+#*" and not left.isspace():
        return True
    if left == "." and right.isalnum():
        before = text[at - 2 : at - 1]
        return not before or before.isspace() or (before.isdigit() and right.isdigit())
    if right in ".,":
        return left.isdigit() and text[at + 1 : at + 2].isdigit()
    if not (left.isalnum() and right.isalnum()):
        return False
    if _UNSPACED.match(left) or _UNSPACED.match(right):
        return False
    return bool(_KATAKANA.match(left)) == bool(_KATAKANA.match(right))


def _is_mark(character: str) -> bool:
    return character == "\u200d" or unicodedata.category(character or " ").startswith("M")
