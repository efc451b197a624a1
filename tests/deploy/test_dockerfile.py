"""The Dockerfile according to a linter, and the image that is built from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.deploy.images import OURS
from tests.deploy.podman import COMPOSE, ROOT, Podman, run

HADOLINT = COMPOSE.with_name("hadolint")


def test_hadolint_reports_nothing() -> None:
    done = subprocess.run([HADOLINT, ROOT / "docker" / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    print("\n        hadolint: nothing to say", flush=True)


def test_the_image_has_labels_and_a_health_check_and_runs_as_uid_10001(podman: Podman) -> None:
    (found,) = podman.json("image", "inspect", OURS)
    assert found["Config"]["User"] == "10001:10001"
    assert found["Healthcheck"]["Test"] == ["CMD", "tidings-healthcheck"]
    assert found["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert not [line for line in found["Config"]["Env"] if "PASSWORD" in line or "KEY" in line]


def test_the_bill_of_materials_lists_the_image_s_debian_packages(podman: Podman, tmp_path: Path) -> None:
    target = tmp_path / "sbom.cdx.json"
    command = [sys.executable, str(ROOT / ".ci" / "supply_chain.py"), "sbom", str(target), "--program=podman"]
    print(f"        bill of materials: {run([*command, f'--image={OURS}'], podman.environment).splitlines()[0]}")
    components = json.loads(target.read_text())["components"]
    found = {component["name"]: component["purl"] for component in components}
    assert found["libc6"].startswith("pkg:deb/debian/libc6@")
    installed = podman("run", "--rm", "--network=none", "--entrypoint=dpkg-query", OURS, "-W", "-f=${Package}\\n")
    assert {name for name, url in found.items() if url.startswith("pkg:deb/")} == set(installed.split())
    assert found["cryptography"].startswith("pkg:pypi/")


def test_the_image_contains_no_package_source_of_the_build_machine(podman: Podman) -> None:
    """Package sources are available during the build, but not in the image."""
    inside = podman(
        "run", "--rm", "--no-healthcheck", "--network=none", "--entrypoint=sh", OURS, "-c", "cat /etc/pip.conf || :"
    )
    assert inside == ""
    history = podman("history", "--no-trunc", "--format", "{{.CreatedBy}}", OURS)
    links = os.environ.get("PIP_FIND_LINKS")
    assert links is None or links not in history
