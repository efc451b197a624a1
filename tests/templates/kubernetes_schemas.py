"""Kubernetes' own schemas, each made self-contained, and kubeconform, which reads them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kubernetes_validate

ROOT = Path(__file__).parents[2]
# A version that clusters run today. Strict: an unknown field is an error.
VERSION = "v1.33.0-local-strict"
FOLDER = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / VERSION
KUBECONFORM = "github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0"
BUILT = ROOT / ".cache" / "kubeconform"


def file_of(resource: dict[str, Any]) -> str:
    """Return the file name of a resource's schema, as kubeconform computes it."""
    group, _, version = resource["apiVersion"].rpartition("/")
    parts = [resource["kind"].lower(), *([group.partition(".")[0]] if group else []), version]
    return "-".join(parts) + ".json"


def write(names: Sequence[str], directory: Path) -> None:
    """Write these schemas, each with the definitions that it refers to."""
    definitions = json.loads((FOLDER / "_definitions.json").read_text())["$defs"]
    for name in set(names):
        used: dict[str, Any] = {}
        schema = _with_definitions(json.loads((FOLDER / name).read_text()), definitions, used)
        (directory / name).write_text(json.dumps({**schema, "definitions": used}))


def kubeconform() -> str | None:
    """Return the program, built with Go if it is not installed; None if neither is available."""
    found = shutil.which("kubeconform") or shutil.which("kubeconform", path=str(BUILT))
    if found is None and shutil.which("go"):
        environment = {**os.environ, "GOBIN": str(BUILT)}
        subprocess.run(["go", "install", KUBECONFORM], env=environment, check=True, timeout=600)
        found = str(BUILT / "kubeconform")
    return found


def _with_definitions(value: Any, definitions: dict[str, Any], used: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_with_definitions(item, definitions, used) for item in value]
    if not isinstance(value, dict):
        return value
    reference = value.get("$ref")
    if isinstance(reference, str):
        name = reference.partition("/$defs/")[2]
        if name not in used:
            used[name] = None
            used[name] = _with_definitions(definitions[name], definitions, used)
        return {"$ref": f"#/definitions/{name}"}
    return {key: _with_definitions(item, definitions, used) for key, item in value.items() if key[:6] != "x-kube"}
