"""Objects of this process that are still in memory."""

from __future__ import annotations

import gc
from typing import TypeVar

Kind = TypeVar("Kind")


def live_objects(kind: type[Kind]) -> list[Kind]:
    """Every object of `kind` and its subclasses that the garbage collector tracks.

    `isinstance` would ask a `weakref.proxy` for the class of an object that may be gone, and raise ReferenceError.
    """
    return [one for one in gc.get_objects() if issubclass(type(one), kind)]
