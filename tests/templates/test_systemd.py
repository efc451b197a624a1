"""Units for systemd, checked by its own tools."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from harness import packages

FOLDER = Path(__file__).parents[2] / "docker" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
# Tenths of systemd's exposure score, from 0 to 100; a unit without any protection has 96.
EXPOSURE = 15


@pytest.fixture(scope="module")
def analyze() -> str:
    (program,) = packages.require(["systemd-analyze"], {"systemd-analyze": "systemd"})
    return program


def run(*command: str) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_systemd_analyze_accepts_every_unit(analyze: str, tmp_path: Path) -> None:
    for unit in UNITS:
        # The program is not installed here.
        text = unit.read_text(encoding="utf-8").replace("/opt/tidings/bin/tidings", "/bin/true")
        (tmp_path / unit.name).write_text(text)
    said = run(analyze, "verify", "--man=no", *map(str, sorted(tmp_path.glob("*.service"))))
    assert [line for line in said.splitlines() if "tidings" in line] == []


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_units_stay_below_the_exposure_threshold(analyze: str, unit: Path) -> None:
    said = run(analyze, "security", "--offline=yes", f"--threshold={EXPOSURE}", str(unit))
    found = re.search(r"exposure level for \S+: ([\d.]+)", said)
    assert found is not None
    assert float(found[1]) * 10 <= EXPOSURE


def test_each_process_has_a_unit_with_its_own_user() -> None:
    texts = {unit.stem.removeprefix("tidings-"): unit.read_text(encoding="utf-8") for unit in UNITS}
    assert texts.keys() == {"webapp", "coreapp", "network", "migrate"}
    users = (FOLDER / "sysusers.conf").read_text(encoding="utf-8")
    for role, text in texts.items():
        assert f"\nUser=tidings-{role}\n" in text
        assert f"\nu tidings-{role} " in users
        assert f"\nExecStart=/opt/tidings/bin/tidings {role}\n" in text
