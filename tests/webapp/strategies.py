"""Generated bodies: any JSON, and JSON with the right names."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


def shaped(names: list[str], inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return objects with some of these fields, and anything that `inner` generates."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, inner)) | inner
