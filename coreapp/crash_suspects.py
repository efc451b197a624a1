"""Items whose handling ended in an error. The names travel with the error to the end of the shard's term."""

from __future__ import annotations

from collections.abc import Sequence

from tidings.storage.business.quarantine import Item

_ITEMS = "tidings_items"


def attach_suspects(error: BaseException, items: Sequence[Item]) -> None:
    """Record which items were being handled when the error was raised. An earlier record is more exact and stays."""
    if items and not suspects_of(error):
        setattr(error, _ITEMS, tuple(items))


def suspects_of(error: BaseException) -> Sequence[Item]:
    """Return the items that were being handled when the error, or its cause, was raised; empty if none is known."""
    for found in (error, error.__cause__):
        items: Sequence[Item] = getattr(found, _ITEMS, ())
        if items:
            return items
    return ()
