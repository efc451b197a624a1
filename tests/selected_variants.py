"""Selection of test variants for `--few-variants`, by which `make test` takes under 15 minutes.

A test of the Coreapp's stages runs on one of the two databases. A test of the network runs on MariaDB over TCP, and on
SQLite over one transport. The test's name decides, so that every run is the same. Tests of storage, shards and journal
run on both databases. `make test-variants` runs all variants.
"""

from __future__ import annotations

import collections
import zlib
from collections.abc import Iterable

_STAGES = tuple(
    f"tests/coreapp/{stage}/"
    for stage in (
        "accepting",
        "account",
        "groups",
        "media",
        "peers",
        "receiving",
        "recovery",
        "sending",
        "upstream",
        "webhook",
    )
)
_NETWORK = "tests/network/"
_DATABASES = {"sqlite", "mariadb"}
_TRANSPORTS = {"tcp", "json", "msgpack"}


def select(node_ids: Iterable[str]) -> set[str]:
    """Return the ids of the tests to run: of a test's variants one, and in the network also that on MariaDB."""
    selected, variants = set[str](), collections.defaultdict[str, list[str]](list)
    for node_id in node_ids:
        test, _, parameters = node_id.partition("[")
        found = parameters.removesuffix("]").split("-")
        if node_id.startswith(_STAGES):
            varied = _DATABASES
        elif node_id.startswith(_NETWORK) and "mariadb" not in found:
            varied = _DATABASES | _TRANSPORTS
        else:
            varied = set()
        if varied & set(found):
            others = "-".join(part for part in found if part not in varied)
            variants[f"{test}[{others}]"].append(node_id)
        else:
            selected.add(node_id)
    for name, choices in variants.items():
        selected.add(sorted(choices)[zlib.crc32(name.encode()) % len(choices)])
    return selected
