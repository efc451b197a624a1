"""The wheel as its users install it: `pipx install`, then `tidings up` in an empty directory; and an upgrade."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.release import machine
from tests.release.machine import Machine, Step
from tests.upgrade import trees

pytestmark = pytest.mark.whole_system

ROOT = Path(__file__).parents[2]
SECONDS = 1_700_000_000
VERSION = "1.0.0rc1"
WHEEL, PINS = f"tidings-{VERSION}-py3-none-any.whl", "constraints.txt"
# Packages of pipx itself, which it adds to each environment's path.
OF_PIPX = ("packaging", "pip", "setuptools", "wheel")
PREVIOUS, PREVIOUS_PINS = "tidings-0.1.0-py3-none-any.whl", "previous-constraints.txt"


def load_release() -> Any:
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels and constraints of this checkout, and of the newest supported revision of the previous version."""
    release, folder, scratch = load_release(), tmp_path_factory.mktemp("given"), tmp_path_factory.mktemp("trees")
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    for name in names:
        if (ROOT / name).exists():
            (scratch / "this" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, scratch / "this" / name)
    for revision in reversed(trees.read_supported()):
        release.export(ROOT, revision.commit, scratch / "previous")
        if release.read_version(scratch / "previous") != VERSION:
            break
        shutil.rmtree(scratch / "previous")
    for tree, wheel, pins, lock in (
        ("this", WHEEL, PINS, "requirements-s3.lock"),
        ("previous", PREVIOUS, PREVIOUS_PINS, "requirements.lock"),
    ):
        built = release.build_wheel(release.build_sdist(scratch / tree, scratch, SECONDS), folder, SECONDS)
        assert built.name == wheel
        (folder / pins).write_text(release.constraints((scratch / tree / lock).read_text()))
    return folder


@pytest.fixture
def where(given: Path, tmp_path: Path) -> Machine:
    return machine.find(given, tmp_path)


def test_the_wheel_sends_its_first_message_in_an_empty_directory(where: Machine) -> None:
    steps = [
        Step(["install", where.pipx, where.path(WHEEL)]),
        Step(["send", where.work, "first"], offline=True),
        Step(["send", where.work, "again"], offline=True),
    ]
    installed, *sent = where.execute(steps)
    assert installed["version"] == VERSION
    for result in sent:
        assert f"Tidings {VERSION} is up" in result["up"]
        assert (result["statuses"], result["exit_status"]) == (["sent", "delivered", "read"], 0)
    print(f"        {sent[0]['up']}; {sent[0]['reply']}", flush=True)


def test_an_upgrade_from_the_previous_wheel_keeps_the_installation(where: Machine, given: Path) -> None:
    steps = [
        Step(["install", where.pipx, where.path(PREVIOUS), where.path(PREVIOUS_PINS)]),
        Step(["send", where.work, "first"], offline=True),
        Step(["install", where.pipx, where.path(WHEEL), where.path(PINS)]),
        Step(["send", where.work, "again"], offline=True),
    ]
    before, first, after, again = where.execute(steps)
    assert (before["version"], after["version"]) == ("0.1.0", VERSION)
    assert "Tidings 0.1.0 is up" in first["up"]
    assert f"Tidings {VERSION} is up" in again["up"]
    for result in (first, again):
        assert (result["statuses"], result["exit_status"]) == (["sent", "delivered", "read"], 0)
    pins = dict(line.split(" ")[0].split("==") for line in (given / PINS).read_text().splitlines())
    packages = {name.lower().replace("_", "-"): version for name, version in after["packages"].items()}
    assert len(packages) > 40
    assert {name: version for name, version in packages.items() if pins.get(name) not in (None, version)} == {}
    assert packages.keys() - pins.keys() <= {"tidings", *OF_PIPX}
    print(f"        upgraded {before['version']} to {after['version']}; {len(packages)} packages as pinned", flush=True)
