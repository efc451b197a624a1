#!/usr/bin/env python3
"""Print the size of the product at a revision as a Markdown table: modules, lines, import edges.

    .ci/sizes.py [--without-later] [REVISION]

Lines are those with code or docstrings, without blank lines and comments. A node of `webapp` is a folder, a resource in
`webapp/api/`, or a module at the top; a node of `tidings` is a folder, or a table family of its storage. An edge is an
import between two nodes. --without-later leaves out the packages that issues after the sorting of packages have added.
Needs only the standard library.
"""

# ruff: noqa: T201, S603, S607

from __future__ import annotations

import argparse
import ast
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import PurePath

TOPS = ("webapp", "coreapp", "network", "handset", "tidings", "cli", "migrations")
LATER = (
    "webapp/console/",
    "webapp/api/cloud/",
    "webapp/api/d360/",
    "webapp/api/testing/",
    "webapp/api/upstream/",
    "coreapp/graph_api/",
    "coreapp/upstream/",
    "coreapp/webhook/cloud/",
    "coreapp/history_retention.py",
    "handset/web/",
    "tidings/pages/",
    "tidings/testing/",
    "tidings/wire/cloud/",
    *(f"tidings/storage/business/callback_{name}.py" for name in ("changes", "history", "views")),
    *(f"tidings/storage/business/{name}_views.py" for name in ("console", "message")),
    "cli/moving/",
)


def read(revision: str) -> dict[str, str]:
    """Return the product's modules by path."""
    listed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", revision, *TOPS], capture_output=True, check=True, text=True
    )
    paths = [path for path in listed.stdout.splitlines() if path.endswith(".py")]
    names = "".join(f"{revision}:{path}\n" for path in paths).encode()
    rest = subprocess.run(["git", "cat-file", "--batch"], input=names, capture_output=True, check=True).stdout
    found = {}
    for path in paths:
        head, _, rest = rest.partition(b"\n")
        size = int(head.split()[2])
        found[path], rest = rest[:size].decode(), rest[size + 1 :]
    return found


def count_lines(source: str) -> int:
    return sum(1 for line in source.splitlines() if line.strip() and not line.lstrip().startswith("#"))


def module_of(path: str) -> str:
    return ".".join(PurePath(path).with_suffix("").parts).removesuffix(".__init__")


def node_of(module: str) -> str:
    parts = module.split(".")
    is_family = parts[:2] == ["tidings", "storage"] and len(parts) > 3
    return ".".join(parts[: 3 if is_family or parts[:2] == ["webapp", "api"] else 2])


def list_edges(sources: Mapping[str, str], top: str) -> tuple[set[str], set[tuple[str, str]]]:
    """Return the nodes of a package, and the pairs of them of which the first imports the second."""
    modules = {module_of(path): source for path, source in sources.items() if path.startswith(f"{top}/")}
    pairs = {
        (node_of(module), node_of(imported))
        for module, source in modules.items()
        for name in _imported(source)
        for imported in [name if name in modules else name.rpartition(".")[0]]
        if imported in modules
    }
    nodes = {node_of(module) for module in modules} - {top}
    return nodes, {(a, b) for a, b in pairs if a != b and top not in (a, b)}


def _imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", nargs="?", default="HEAD")
    parser.add_argument("--without-later", action="store_true")
    options = parser.parse_args()
    sources = read(options.revision)
    if options.without_later:
        sources = {path: source for path, source in sources.items() if not path.startswith(LATER)}
    print("| package | modules | lines |\n|---|--:|--:|")
    for top in TOPS:
        own = [source for path, source in sources.items() if path.startswith(f"{top}/")]
        print(f"| {top} | {len(own)} | {sum(map(count_lines, own)):,} |")
    print(f"| together | {len(sources)} | {sum(map(count_lines, sources.values())):,} |")
    for top in ("webapp", "tidings"):
        nodes, edges = list_edges(sources, top)
        print(f"\n{top}: {len(nodes)} nodes, {len(edges)} edges")


if __name__ == "__main__":
    main()
