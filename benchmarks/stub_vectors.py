"""A stand-in for an embedding model, needing numpy alone: texts that share words are near."""

from __future__ import annotations

import hashlib
import re

import numpy as np
from numpy.typing import NDArray

DIMENSION = 64


def text_vector(text: str, words: dict[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return the normalised sum of a vector for each word; `words` remembers those of words."""
    total = np.zeros(DIMENSION, dtype=np.float32)
    for word in re.findall(r"\w+", text.lower()):
        if word not in words:
            digest = hashlib.shake_128(word.encode()).digest(DIMENSION)
            words[word] = np.frombuffer(digest, dtype=np.uint8).astype(np.float32) - 127.5
        total += words[word]
    norm: float = np.linalg.norm(total).item()
    return total / (norm or 1.0)
