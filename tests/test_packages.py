"""Packages that tests need are installed once, however many tests require them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import packages

# Installs the program `served`. Like the real apt-get it fails when another one runs, and when the package lists were
# not fetched.
APT_GET = """#!/bin/sh
cd "{directory}"
mkdir running || {{ echo "could not get lock" >&2; exit 100; }}
echo "$@" >>calls
case "$*" in
*update*) touch lists ;;
*install*) [ -e lists ] && {{ printf '#!/bin/sh\\n' >bin/served; chmod +x bin/served; }} ;;
esac
status=$?
rmdir running
exit $status
"""
PROGRAM = """
from harness import packages
print(packages.require(["served"], {"served": "some-package"})[0])
"""


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """Environment of a machine whose apt-get is ours, for root or for a user with sudo."""
    (tmp_path / "bin").mkdir()
    apt_get, sudo = tmp_path / "bin" / "apt-get", tmp_path / "bin" / "sudo"
    apt_get.write_text(APT_GET.format(directory=tmp_path))
    sudo.write_text('#!/bin/sh\nshift\nexec "$@"\n')
    apt_get.chmod(0o755)
    sudo.chmod(0o755)
    return {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "TMPDIR": str(tmp_path), "PYTHONPATH": os.getcwd()}


def test_two_concurrent_processes_install_a_package_once(machine: dict[str, str], tmp_path: Path) -> None:
    pending = [
        subprocess.Popen([sys.executable, "-c", PROGRAM], env=machine, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    responses = [process.communicate(timeout=60) for process in pending]
    assert [process.returncode for process in pending] == [0, 0], responses
    assert all(out.decode().splitlines()[-1] == str(tmp_path / "bin" / "served") for out, _ in responses)
    installs = [line for line in (tmp_path / "calls").read_text().splitlines() if "some-package" in line]
    assert len(installs) == 2, "one try, the lists, and one more"


def test_without_apt_the_error_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(packages.PackageMissing, match="some-package"):
        packages.require(["served"], {"served": "some-package"})
