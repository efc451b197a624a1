"""Files of other projects are those of the recorded release, under a licence that is permitted."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import tidings.pages

STATIC = Path(tidings.pages.__file__).parent / "static"
RECORD: dict[str, Any] = json.loads((STATIC / "vendored.json").read_text())


def test_each_file_is_the_recorded_one() -> None:
    recorded = {name: file for package in RECORD.values() for name, file in package["files"].items()}
    assert recorded.keys() == {path.name for path in STATIC.iterdir()} - {"vendored.json", "send_once.js"}
    for name, file in recorded.items():
        assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == file["sha256"], name


def test_each_package_names_its_version_licence_and_integrity() -> None:
    for name, package in RECORD.items():
        assert package["package"].startswith(f"{name}@{package['version']} ")
        assert package["licence"] in ("0BSD", "MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause")
        algorithm, _, digest = package["integrity"].partition("-")
        assert (algorithm, len(base64.b64decode(digest))) == ("sha512", 64)


def test_no_file_names_another_that_would_be_loaded() -> None:
    for path in STATIC.glob("*.js"):
        assert "sourceMappingURL" not in path.read_text()
