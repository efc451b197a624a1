"""Check by `.ci/check-wheels` that locked packages have wheels for each tested version of Python."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV = Path(sys.prefix) / "bin" / "uv"
# Tags of the tested versions.
TESTED = ("cp311", "cp312", "cp313", "cp314", "cp315")


def check(directory: Path, *tags: str) -> subprocess.CompletedProcess[str]:
    """Check a lock of one package that has wheels with these tags, and no other index."""
    (directory / ".venv" / "bin").mkdir(parents=True)
    (directory / ".venv" / "bin" / "uv").symlink_to(UV)
    (directory / "some.lock").write_text("native==1.0\n")
    for tag in tags:
        name = f"{tag}-{tag}-manylinux_2_17_x86_64"
        with zipfile.ZipFile(directory / f"native-1.0-{name}.whl", "w") as wheel:
            wheel.writestr("native-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: native\nVersion: 1.0\n")
            wheel.writestr("native-1.0.dist-info/WHEEL", f"Wheel-Version: 1.0\nTag: {name}\n")
            wheel.writestr("native-1.0.dist-info/RECORD", "")
    (directory / "uv.toml").write_text(f'[pip]\nno-index = true\nfind-links = ["{directory}"]\n')
    environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "UV_NO_CACHE": "1"}
    return subprocess.run(
        [ROOT / ".ci" / "check-wheels", "some.lock"], cwd=directory, env=environment, capture_output=True, text=True
    )


def test_a_package_without_a_wheel_for_one_version_is_reported(tmp_path: Path) -> None:
    done = check(tmp_path, *(tag for tag in TESTED if tag != "cp313"))
    assert done.returncode == 1
    assert "not every package of some.lock has a wheel for Python 3.13:" in done.stderr
    assert "native" in done.stderr.partition("3.13:")[2]


def test_a_lock_with_wheels_for_all_versions_passes(tmp_path: Path) -> None:
    done = check(tmp_path, *TESTED)
    assert (done.returncode, done.stderr) == (0, "")
