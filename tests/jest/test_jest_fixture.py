"""The Jest fixture that `docs/testing.md` links to works. Needs Node 20 and the packages of this folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.examples import page_files

pytestmark = pytest.mark.whole_system

HERE = Path(__file__).parent


def test_the_jest_fixture_starts_sends_receives_and_stops(tmp_path: Path) -> None:
    for name in ("tidings.mjs", "messages.test.mjs"):
        (tmp_path / name).write_text((page_files.EXAMPLES / "jest" / name).read_text(encoding="utf-8"))
    (tmp_path / "package.json").write_text(json.dumps({"jest": {"testMatch": ["**/*.test.mjs"]}}))
    (tmp_path / "node_modules").symlink_to(HERE / "node_modules")
    output = page_files.run(
        ["node", "--experimental-vm-modules", "node_modules/jest/bin/jest.js", "--ci", "--no-cache"], tmp_path
    )
    assert "Tests:       1 passed, 1 total" in output
