"""Product modules use private names of other packages only where decision 62 lists them, and none of uvicorn."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator

import pytest
import uvicorn

from tests.test_import_direction import OURS, ROOT, module_name, product

DECISION = ROOT / "docs" / "decisions" / "0062-own-http-1-1-protocol-class-for-uvicorn.md"
# Documented methods and attributes of rows and named tuples, whose underscore keeps them apart from columns.
DOCUMENTED = {"_mapping", "_asdict", "_fields", "_replace"}
# Base classes of other packages.
FOREIGN = {"AsyncConnection", "AsyncEngine", "aiomysql.Connection", "uvicorn.Config", "uvicorn.Server"}
BOUNDED = ("aiomysql", "aiosqlite", "pymysql", "sqlalchemy", "uvicorn")
# The only module that may import uvicorn.
SERVER = ROOT / "tidings" / "http" / "server.py"


def is_private(name: str) -> bool:
    return name.startswith("_") and name.strip("_") != "" and not name.startswith("__")


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and full name of everything that a module imports absolutely."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def private_imports(source: str) -> list[str]:
    """Return the imports of private names from packages that are not ours, and every import of uvicorn."""
    found = []
    for line, name in imported(ast.parse(source)):
        parts = name.split(".")
        if parts[0] == "uvicorn" or (parts[0] not in OURS and any(map(is_private, parts))):
            found.append(f"{line} {name}")
    return found


def private_attributes(source: str) -> set[str]:
    """Return the private names that a module uses of objects and base classes that it does not define."""
    tree = ast.parse(source)
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and ast.unparse(node.value) not in ("self", "cls"):
            found.add(node.attr)
        if isinstance(node, ast.ClassDef) and FOREIGN & set(map(ast.unparse, node.bases)):
            made = next((item for item in node.body if getattr(item, "name", "") == "__init__"), None)
            own = {inner.attr for inner in ast.walk(made) if isinstance(inner, ast.Attribute)} if made else set()
            for inner in (item for part in node.body for item in ast.walk(part)):
                name = inner.attr if isinstance(inner, ast.Attribute) else getattr(inner, "name", None)
                name = inner.id if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store) else name
                if name is not None and is_private(name) and name not in own:
                    found.add(name)
    return found - DOCUMENTED


def test_no_product_module_imports_a_private_name_of_a_package_and_only_one_imports_uvicorn() -> None:
    found = [f"{module_name(path)}:{what}" for path in product() for what in private_imports(path.read_text())]
    assert [re.sub(r"\d+ ", "", what) for what in found] == ["tidings.http.server:uvicorn"]


def test_the_server_uses_and_overrides_no_private_name_of_uvicorn() -> None:
    server = uvicorn.Server(uvicorn.Config(lambda scope: None, log_config=None))
    theirs = {name for thing in (server, server.config, server.server_state) for name in dir(thing) if is_private(name)}
    assert {"_serve", "_captured_signals"} <= theirs
    assert private_attributes(SERVER.read_text()) == set()
    ours = {node.attr for node in ast.walk(ast.parse(SERVER.read_text())) if isinstance(node, ast.Attribute)}
    assert "_stop" in ours
    assert ours & theirs == set()


@pytest.mark.parametrize(
    "source",
    [
        "import uvicorn",
        "from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol",
        "from httptools.parser import _parser",
        "import starlette._utils",
        "if True:\n    from uvicorn import Server",
    ],
)
def test_a_private_import_is_found(source: str) -> None:
    assert len(private_imports(source)) == 1


def test_public_and_own_names_are_no_private_imports() -> None:
    source = "from __future__ import annotations\nfrom tidings import __version__\nimport httptools"
    assert private_imports(source) == []


def test_private_names_that_storage_uses_of_database_packages_are_those_of_the_decision() -> None:
    paths = sorted((ROOT / "tidings" / "storage").glob("*.py"))
    used = {(path.name, name) for path in paths for name in private_attributes(path.read_text())}
    rows = re.findall(r"^\| `tidings/storage/(\w+\.py)` \|[^|]*\|([^|]*)\|", DECISION.read_text(), re.MULTILINE)
    listed = {(module, name) for module, names in rows for name in re.findall(r"`(_\w+)`", names)}
    assert used == listed
    assert len(listed) == 13


def test_packages_whose_private_names_are_used_or_methods_are_overridden_have_an_upper_bound() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    bounded = {re.split(r"[\[<>=]", line)[0] for line in declared if "<" in line}
    assert bounded >= set(BOUNDED)


def test_a_private_attribute_is_found() -> None:
    source = """
class Mine(AsyncEngine):
    _connection_cls = int

    def __init__(self):
        self._own = self.other._foreign

    def _overridden(self):
        self._inherited, self._own
"""
    assert private_attributes(source) == {"_connection_cls", "_foreign", "_overridden", "_inherited"}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("async def _serve(self, sockets=None): ...", "_serve"),
        ("def run(self): super()._serve()", "_serve"),
        ("def run(self): self._captured_signals", "_captured_signals"),
        ("def run(self): uvicorn.server._x", "_x"),
        ("_loop = None", "_loop"),
    ],
)
def test_a_private_name_of_uvicorns_server_is_found(line: str, name: str) -> None:
    assert private_attributes(f"class Mine(uvicorn.Server):\n    {line}") == {name}
