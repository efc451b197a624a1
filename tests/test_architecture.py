"""Architecture rules: no import cycles of modules or packages, short constructors and functions, no renamed
imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import pytest

from tests.test_import_direction import ROOT, all_imports, module_name

PRODUCT = ("cli", "webapp", "coreapp", "network", "handset", "tidings")
MOST_ARGUMENTS = 8
MOST_POSITIONAL = 3
MOST_LINES = 60

Imports = Mapping[str, set[str]]


def package(module: str) -> str:
    """Return the package of a module: a folder of a process, a package of the library, or a table family of storage.

    A module at the top of a process or of the library is its own package.
    """
    parts = module.split(".")
    return ".".join(parts[:3]) if parts[:2] == ["tidings", "storage"] and len(parts) > 3 else ".".join(parts[:2])


def imports_of(tree: ast.Module, module: str, modules: Mapping[str, object]) -> set[str]:
    """Return the product's modules that a module imports, whether it names them or names in them."""
    is_package = (ROOT / module.replace(".", "/")).is_dir()
    names = {name for _, name in all_imports(tree, module, is_package)}
    return {name if name in modules else name.rpartition(".")[0] for name in names} & (modules.keys() - {module})


def cycles(imports: Imports) -> list[list[str]]:
    """Return groups whose members import each other in a cycle, each sorted."""
    reach: dict[str, set[str]] = {}
    for start in imports:
        seen: set[str] = set()
        waiting = list(imports[start])
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting.extend(imports.get(name, ()))
        reach[start] = seen
    found = {
        tuple(sorted({start} | {name for name in reach[start] if start in reach.get(name, ())}))
        for start in imports
        if start in reach[start]
    }
    return [list(cycle) for cycle in sorted(found)]


def packages(imports: Imports) -> dict[str, set[str]]:
    """Return the other packages that each package imports."""
    found: dict[str, set[str]] = {}
    for module, names in imports.items():
        found.setdefault(package(module), set()).update(
            package(name) for name in names if package(name) != package(module)
        )
    return found


def faults(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and fault of everything in a module that is too long or renames an import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.asname:
                    yield node.lineno, f"{alias.name} is imported under another name"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MOST_LINES:
                yield node.lineno, f"{node.name} has {lines} lines"
            if node.name == "__init__":
                positional = len(node.args.posonlyargs) + len(node.args.args) - 1
                if positional + len(node.args.kwonlyargs) > MOST_ARGUMENTS:
                    yield node.lineno, f"a constructor of {positional + len(node.args.kwonlyargs)} arguments"
                if positional > MOST_POSITIONAL:
                    yield node.lineno, f"a constructor of {positional} positional arguments"


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    paths = [path for top in PRODUCT for path in sorted((ROOT / top).rglob("*.py"))]
    return {module_name(path): ast.parse(path.read_text()) for path in paths}


@pytest.fixture(scope="module")
def imports(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    return {module: imports_of(tree, module, trees) for module, tree in trees.items()}


def test_modules_have_no_import_cycles(imports: dict[str, set[str]]) -> None:
    assert cycles(imports) == []


def test_packages_have_no_import_cycles(imports: dict[str, set[str]]) -> None:
    assert cycles(packages(imports)) == []


def test_constructors_and_functions_are_short_and_imports_keep_their_names(trees: dict[str, ast.Module]) -> None:
    found = [f"{module}:{line} {fault}" for module, tree in trees.items() for line, fault in faults(tree)]
    assert not found, "\n" + "\n".join(found)


def test_the_checked_import_graph_includes_the_product(imports: dict[str, set[str]]) -> None:
    assert "tidings.aio.batcher" in imports["coreapp.journal.commits"] | imports["network.routing.writer"]
    assert {package(module) for module in imports} >= {"coreapp.sending", "handset.robots", "tidings.storage.business"}


def test_cycles_of_any_length_are_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [["b", "c"]]
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert cycles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_a_package_cycle_without_a_module_cycle_is_found() -> None:
    imports = {
        "coreapp.groups.sender": {"coreapp.sending.jobs"},
        "coreapp.sending.jobs": set[str](),
        "coreapp.sending.encryption": {"coreapp.groups.names"},
        "coreapp.groups.names": set[str](),
    }
    assert cycles(imports) == []
    assert cycles(packages(imports)) == [["coreapp.groups", "coreapp.sending"]]


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("from a import b as c", "b is imported under another name"),
        ("def f():\n" + "    x = 1\n" * 60, "f has 61 lines"),
        ("class A:\n    def __init__(self, a, b, c, d): ...", "a constructor of 4 positional arguments"),
        ("class A:\n    def __init__(self, *, a, b, c, d, e, f, g, h, i): ...", "a constructor of 9 arguments"),
    ],
)
def test_a_violation_of_a_code_rule_is_found(source: str, fault: str) -> None:
    assert [said for _, said in faults(ast.parse(source))] == [fault]


@pytest.mark.parametrize(
    "source",
    [
        "import sqlalchemy as sa\nfrom a import b",
        "def f():\n" + "    x = 1\n" * 59,
        "class A:\n    def __init__(self, a, b, c, *, d, e, f, g, h): ...",
    ],
)
def test_code_within_the_limits_passes(source: str) -> None:
    assert list(faults(ast.parse(source))) == []
