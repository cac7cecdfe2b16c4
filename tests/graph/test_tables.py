"""The order of keys."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llama_index_graph_rag.graph.tables import key_order

HALF = st.sampled_from([b"\x00" * 8, b"\x00" * 7 + b"\x01", b"\xff" * 8, b"\x7f" + b"\xff" * 7])
KEY = st.tuples(HALF, HALF).map(b"".join) | st.binary(min_size=16, max_size=16)


@given(st.lists(KEY, max_size=12), st.lists(KEY, max_size=4))
def test_keys_are_ordered_as_bytes_and_stable(base: list[bytes], tail: list[bytes]) -> None:
    keys = [*sorted(base), *tail]
    order = key_order(np.frombuffer(b"".join(keys), dtype="S16"))
    assert order.tolist() == sorted(range(len(keys)), key=keys.__getitem__)
