"""Imports point down only, SQL stays in the storage package, and functions contain no imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROCESSES = ("webapp", "coreapp", "network", "handset")
OURS = (*PROCESSES, "cli", "tidings", "migrations", "harness", "tests", "benchmarks")

# Parts of the product that each part may import in addition to itself. The longest matching name counts.
ALLOWED: dict[str, tuple[str, ...]] = {
    "webapp": ("tidings",),
    "coreapp": ("tidings",),
    "network": ("tidings",),
    "handset": ("tidings",),
    "tidings": (),
    "tidings.e2ee": (),
    "tidings.config": (),
    "tidings.aio": (),
    "tidings.secrets": ("tidings.config",),
    "tidings.net": ("tidings.aio", "tidings.config"),
    "tidings.http": ("tidings.net", "tidings.aio", "tidings.config"),
    "tidings.observability": ("tidings.http", "tidings.net", "tidings.secrets", "tidings.aio", "tidings.config"),
    "tidings.installation": ("tidings.observability", "tidings.net", "tidings.secrets", "tidings.config"),
    "tidings.wire": ("tidings.net",),
    "tidings.client": ("tidings.wire", "tidings.e2ee", "tidings.media", "tidings.aio"),
    "tidings.egress": ("tidings.config",),
    "tidings.media": (),
    "tidings.pages": (),
    "tidings.storage": ("tidings.installation", "tidings.net", "tidings.secrets", "tidings.aio", "tidings.config"),
    "tidings.objects": (
        "tidings.media",
        "tidings.storage",
        "tidings.observability",
        "tidings.net",
        "tidings.secrets",
        "tidings.aio",
        "tidings.config",
    ),
    "tidings.keys": ("tidings.e2ee", "tidings.storage", "tidings.secrets", "tidings.aio", "tidings.config"),
    "tidings.changes": ("tidings.storage", "tidings.aio"),
    "tidings.testing": ("tidings.config",),
    "cli": ("tidings", *PROCESSES),
    "migrations": ("tidings.storage",),
    "harness": ("tidings",),
}
SQL = ("sqlalchemy", "aiomysql", "aiosqlite", "pymysql", "sqlite3", "alembic")
SQL_ALLOWED = ("tidings.storage", "migrations", "harness")


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def all_imports(tree: ast.Module, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Yield line and absolute name of every import in the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            base = parts[: len(parts) - node.level + is_package] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{origin}.{alias.name}"


def violations(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """Return the violations of one module, a line each."""
    tree = ast.parse(source)
    part = max((name for name in ALLOWED if within(module, name)), key=len)
    allowed = (*ALLOWED[part], part)
    found = []
    for line, name in all_imports(tree, module, is_package):
        where = f"{module}:{line} imports {name}"
        if name.split(".")[0] in OURS and not any(within(name, package) for package in allowed):
            found.append(f"{where}; {part} may import only {', '.join(ALLOWED[part]) or 'nothing of ours'}")
        if name.split(".")[0] in SQL and not any(within(module, package) for package in SQL_ALLOWED):
            found.append(f"{where}; SQL belongs in {SQL_ALLOWED[0]}")
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    found.append(f"{module}:{node.lineno} imports inside a function")
    return found


def product() -> list[Path]:
    tops = (*PROCESSES, "cli", "tidings", "migrations", "harness")
    return sorted(path for top in tops for path in (ROOT / top).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_imports_point_down_only() -> None:
    found = []
    for path in product():
        found += violations(path.read_text(), module_name(path), is_package=path.name == "__init__.py")
    assert not found, "\n" + "\n".join(sorted(set(found)))


def test_the_checked_files_include_the_product() -> None:
    names = {module_name(path) for path in product()}
    assert {"tidings.aio.batcher", "tidings.wire.connection", "tidings.storage.database"} <= names


@pytest.mark.parametrize(
    ("module", "source", "word"),
    [
        ("webapp.routes", "import coreapp.jobs", "webapp may import only tidings"),
        ("webapp.routes", "from coreapp import jobs", "webapp may import only tidings"),
        ("coreapp.network_connection", "from network.mailbox import store", "coreapp may import only"),
        ("coreapp.network_connection", "import cli.main", "may import only tidings"),
        ("handset.robots", "def f():\n    import json", "inside a function"),
        ("handset.robots", "async def f():\n    if True:\n        from json import loads", "inside a function"),
        ("network.mailbox", "import sqlalchemy as sa", "SQL belongs"),
        ("webapp.api.users", "from sqlalchemy.ext.asyncio import AsyncConnection", "SQL belongs"),
        ("tidings.e2ee.ratchet", "from tidings.aio import lru", "nothing of ours"),
        ("tidings.aio.service", "from tidings.storage import schema", "nothing of ours"),
        ("tidings.egress.guard", "from tidings.storage import schema", "tidings.config"),
        ("tidings.wire.core", "from ..storage import schema", "tidings.net"),
        ("tidings.wire.device", "from tidings.client import connection", "tidings.net"),
        ("tidings.client.connection", "from tidings.storage import schema", "may import only tidings.wire"),
        ("tidings.client.connection", "import coreapp.shard", "may import only tidings.wire"),
        ("tidings.media.files", "from tidings.storage import media", "may import only nothing of ours"),
        ("tidings.storage.jobs", "from tidings import wire", "may import only tidings.installation"),
        ("tidings.storage.jobs", "from tests import conftest", "may import only"),
        (
            "tidings.aio.lru",
            "if True:\n    import webapp",
            "nothing of ours",
        ),
    ],
)
def test_a_violation_is_found(module: str, source: str, word: str) -> None:
    assert any(word in line for line in violations(source, module))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("webapp.routes", "import asyncio\nfrom tidings.wire import core\nfrom webapp import schemas"),
        ("cli.main", "import coreapp.services\nfrom tidings.storage import schema"),
        ("tidings.storage.schema", "import alembic.config\nfrom tidings.storage import database"),
        ("tidings.e2ee.ratchet", "from tidings.e2ee import keys\nfrom . import curve"),
        ("migrations.business.0001", "import sqlalchemy as sa\nfrom tidings.storage import types"),
    ],
)
def test_allowed_imports_pass(module: str, source: str) -> None:
    assert violations(source, module) == []
