"""Cache of compiled statements that the engines of all tests share: compiling takes a fifth of a test's CPU time."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

_Key = tuple[Any, ...]


class CompiledStatements(MutableMapping[_Key, Any]):
    """Compiled statements by SQLAlchemy's own key, whose first part is the dialect of one engine: here its name, its
    driver and the server's version.

    Each test makes new engines. A compiled statement depends on driver and server, and on no other option.
    """

    def __init__(self) -> None:
        self._found: dict[_Key, Any] = {}

    def __getitem__(self, key: _Key) -> Any:
        return self._found[_shared(key)]

    def __setitem__(self, key: _Key, compiled: Any) -> None:
        self._found[_shared(key)] = compiled

    def __delitem__(self, key: _Key) -> None:
        del self._found[_shared(key)]

    def __iter__(self) -> Iterator[_Key]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _shared(key: _Key) -> _Key:
    dialect, *rest = key
    server = getattr(dialect, "server_version_info", None), getattr(dialect, "is_mariadb", False)
    return (dialect.name, dialect.driver, *server, *rest)
