"""Public classes of the product have unique names.

Two kinds of classes keep the names of their formats, which several parts may share: pydantic models of the API, whose
names are the schema names of `/openapi.json`, and the frames of the binary protocols. A class of any other kind shares
its name neither with one of these nor with another class.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from tests.test_import_direction import ROOT, module_name

PRODUCT = ("cli", "webapp", "coreapp", "network", "handset", "tidings")
FRAMES = {
    "network.cluster.frames",
    "tidings.wire.content",
    "tidings.wire.core",
    "tidings.wire.device",
    "tidings.wire.groups",
    "tidings.wire.registration",
}
# Names that several classes may have, each with the reason.
SHARED = {
    "Forbidden": "error 403 of the network, and the error of an egress guard, whose name callbacks record",
    "Settings": "each process has one, read by its `services.py`",
    "StaleEpoch": "error of the device API, raised by the network and by its client",
    "Unauthorized": "error of the device API, raised by the network and by its client",
    "WrongHost": "the HTTP servers of the Webapp and of the network refuse a request under the same rule",
}

Trees = Mapping[str, ast.Module]


def _name(base: ast.expr) -> str:
    """Return the last part of the name of a base class, without type arguments."""
    return ast.unparse(base).partition("[")[0].rpartition(".")[2]


def _models(trees: Trees) -> set[str]:
    """Return the names of pydantic models, with those that inherit from one."""
    bases: dict[str, set[str]] = {}
    for tree in trees.values():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                bases.setdefault(node.name, set()).update(map(_name, node.bases))
    found = {"BaseModel", "RootModel"}
    while new := {name for name, above in bases.items() if above & found} - found:
        found |= new
    return found


def shared_names(trees: Trees) -> dict[str, list[str]]:
    """Return the modules of each public class name that more than one class has.

    Names that only models and frames share are left out.
    """
    models = _models({module: tree for module, tree in trees.items() if module.startswith("webapp")})
    found: dict[str, list[tuple[str, bool]]] = {}
    for module, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                is_model = module.startswith("webapp") and any(_name(base) in models for base in node.bases)
                found.setdefault(node.name, []).append((module, is_model or module in FRAMES))
    return {
        name: sorted(module for module, _ in places)
        for name, places in found.items()
        if len(places) > 1 and not all(keeps_name for _, keeps_name in places)
    }


def test_public_classes_have_unique_names() -> None:
    paths = [path for top in PRODUCT for path in sorted((ROOT / top).rglob("*.py"))]
    trees = {module_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    assert sum(isinstance(node, ast.ClassDef) for tree in trees.values() for node in tree.body) > 1_000
    assert trees.keys() >= FRAMES
    found = shared_names(trees)
    assert {name: modules for name, modules in found.items() if name not in SHARED} == {}
    assert SHARED.keys() - found.keys() == set(), "entries of SHARED that are out of date"


def test_a_shared_name_is_found() -> None:
    trees = {
        "coreapp.jobs": ast.parse("class Queue: ...\nclass _Row: ..."),
        "network.envelopes": ast.parse("class Queue: ...\nclass _Row: ..."),
        "webapp.schemas": ast.parse(
            "class Base(pydantic.BaseModel): ...\nclass Item(Base): ...\nclass Text(Base): ..."
        ),
        "webapp.api.messages": ast.parse("class Item(Base): ..."),
        "tidings.wire.core": ast.parse("class Item(Frame): ..."),
        "handset.texts": ast.parse("class Text: ..."),
    }
    assert shared_names(trees) == {
        "Queue": ["coreapp.jobs", "network.envelopes"],
        "Text": ["handset.texts", "webapp.schemas"],
    }
