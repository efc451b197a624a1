"""Installation of the locked packages by `.ci/install`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_an_unreachable_package_index_is_reported_at_once(tmp_path: Path) -> None:
    if not (Path(sys.prefix) / "bin" / "python").exists():
        pytest.skip("needs a virtual environment")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(Path(sys.prefix) / "bin" / "python")
    script = shutil.copy(ROOT / ".ci" / "install", tmp_path / "install")
    # Nothing listens on port 1.
    environment = {**os.environ, "PIP_INDEX_URL": "http://127.0.0.1:1/simple", "PIP_CONFIG_FILE": os.devnull}
    environment.pop("PIP_EXTRA_INDEX_URL", None)
    begun = time.monotonic()
    done = subprocess.run(
        [script, str(tmp_path), str(ROOT / "requirements.lock")], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "no package index reachable" in done.stderr
    assert "PIP_NO_INDEX=1" in done.stderr
    assert time.monotonic() - begun < 30.0
