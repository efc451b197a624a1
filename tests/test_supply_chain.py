"""Vulnerabilities, licences and the bill of materials are determined from the lock files."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).parents[1]
LOCKS = [ROOT / "requirements.lock", ROOT / "requirements-dev.lock"]
ADVISORY = """
id: PYSEC-2099-1
aliases: [CVE-2099-1]
affected:
- package: {name: MarkupSafe, ecosystem: PyPI}
  ranges:
  - type: GIT
    events: [{introduced: "0"}, {fixed: abc}]
  - type: ECOSYSTEM
    events: [{introduced: "1.0"}, {fixed: "1.2"}, {introduced: "3.0"}]
"""


@pytest.fixture(scope="module")
def supply_chain() -> Any:
    spec = importlib.util.spec_from_file_location("supply_chain", ROOT / ".ci" / "supply_chain.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["supply_chain"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def unreachable(supply_chain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supply_chain, "sent_to_service", lambda locks: [])


def test_every_locked_package_has_a_version_and_hashes(supply_chain: Any) -> None:
    for path in ROOT.glob("requirements*.lock"):
        packages = supply_chain.locked(path)
        lines = path.read_text().splitlines()
        assert len(packages) == sum("==" in line for line in lines)
        assert sum(len(package.hashes) for package in packages) == sum("--hash=" in line for line in lines)
        assert all(package.hashes for package in packages)


def test_the_licence_of_every_locked_package_is_permitted(supply_chain: Any) -> None:
    assert supply_chain.licences(LOCKS) == 0


@pytest.mark.parametrize(
    ("expression", "permitted"),
    [
        ("MIT", True),
        ("Apache-2.0 OR GPL-3.0-only", True),
        ("MIT AND PSF-2.0", True),
        ("MIT AND GPL-3.0-only", False),
        ("AGPL-3.0-only", False),
        ("Apache-2.0 WITH LLVM-exception", False),
        ("LicenseRef-Ours", False),
        ("", False),
    ],
)
def test_a_licence_expression_is_permitted_if_its_licences_are(
    supply_chain: Any, expression: str, permitted: bool
) -> None:
    assert supply_chain.is_permitted(expression) is permitted


def test_a_package_without_a_known_licence_is_reported_by_name(
    supply_chain: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "other.lock"
    lock.write_text("nobody-has-this==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\n")
    assert supply_chain.licences([lock]) == 1
    assert "nobody-has-this 1.0: no licence that is understood" in capsys.readouterr().out


def test_the_supply_chain_check_covers_every_lock_file() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = next(line for line in makefile.splitlines() if line.startswith("LOCKED :=")).split()[2:]
    assert sorted(named) == sorted(path.name for path in ROOT.glob("requirements*.lock"))
    recipe = makefile.partition("\ncheck:")[2].partition("\n\n")[0]
    for command in ("licences", "audit"):
        assert any(command in line and "$(LOCKED)" in line for line in recipe.splitlines())


def test_the_licence_of_a_package_in_another_root_is_read_from_its_metadata(supply_chain: Any, tmp_path: Path) -> None:
    lock = tmp_path / "other.lock"
    lock.write_text("elsewhere==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\n")
    metadata = tmp_path / "lib" / "python3.11" / "site-packages" / "elsewhere-1.0.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    for licence, refused in (("MIT", 0), ("GPL-3.0-only", 1)):
        metadata.write_text(f"Metadata-Version: 2.4\nName: elsewhere\nVersion: 1.0\nLicense-Expression: {licence}\n\n")
        assert supply_chain.licences([lock], [tmp_path]) == refused
    assert supply_chain.licences([lock]) == 1


def test_the_bill_of_materials_lists_the_locked_packages_and_is_reproducible(supply_chain: Any) -> None:
    packages = supply_chain.locked(LOCKS[0])
    text = supply_chain.bill(packages, "1.2.3")
    assert text == supply_chain.bill(packages, "1.2.3")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document = json.loads(text)
    assert document["metadata"]["component"]["version"] == "1.2.3"
    listed = {(one["name"], one["version"]): len(one["hashes"]) for one in document["components"]}
    assert listed == {(package.name, package.version): len(package.hashes) for package in packages}
    assert all(one["licenses"] for one in document["components"])


@pytest.mark.usefixtures("unreachable")
def test_an_offline_audit_uses_both_files_and_prints_their_dates(
    supply_chain: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert supply_chain.audit(LOCKS) == 0
    said = capsys.readouterr().out
    assert "2024-07-11" in said
    assert "2026-08-04" in said
    assert "packages of requirements.lock" in said


@pytest.mark.usefixtures("unreachable")
def test_a_locked_version_that_a_reported_advisory_affects_fails_the_audit(
    supply_chain: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "requirements-other.lock"
    lock.write_text("starlette==1.2.9 \\\n    --hash=sha256:" + "0" * 64 + "\n")
    assert supply_chain.audit([lock]) == 1
    said = capsys.readouterr().out
    assert "starlette 1.2.9: PYSEC-2026-248, fixed in 1.3.0" in said
    assert "PYSEC-2026-161" not in said


@pytest.mark.usefixtures("unreachable")
def test_a_locked_version_that_an_advisory_affects_fails_the_audit(
    supply_chain: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "vulns" / "markupsafe"
    folder.mkdir(parents=True)
    (folder / "PYSEC-2099-1.yaml").write_text(ADVISORY)
    (folder / "PYSEC-2099-2.yaml").write_text(ADVISORY + "withdrawn: 2099-01-01\n")
    kept = tmp_path / "advisories.json"
    assert supply_chain.snapshot(tmp_path, "2099-01-01", [LOCKS[0]], kept) == 0
    assert supply_chain.audit(LOCKS, kept) == 1
    assert "PYSEC-2099-1, fixed in 1.2" in capsys.readouterr().out
    assert not supply_chain.is_affected("1.2", [["1.0", "1.2"]])
    assert supply_chain.is_affected("1.1.9", [["1.0", "1.2"]])


def test_the_committed_advisory_snapshot_has_the_format_of_the_command(supply_chain: Any) -> None:
    advisories = json.loads(supply_chain.SNAPSHOT.read_text())
    names = {package.name for package in supply_chain.locked(LOCKS[0])}
    assert advisories["packages"].keys() <= names
    for those in advisories["packages"].values():
        for advisory in those:
            assert advisory["id"].startswith("PYSEC-")
            assert all(first and (fixed is None or fixed) for first, fixed in advisory["ranges"])


STATUS = """Package: libc6
Status: install ok installed
Architecture: amd64
Source: glibc (2.36-9)
Version: 2.36-9+deb12u10
Description: GNU C Library
 with a line that goes on: it is no field

Package: tzdata
Status: deinstall ok config-files
Architecture: all
Version: 2024b

Package: ca-certificates
Status: install ok installed
Architecture: all
Version: 20230311
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Root directory of a Debian image, with the files that the bill of materials reads."""
    for path, text in {
        "etc/os-release": 'PRETTY_NAME="Debian 12"\nID=debian\nVERSION_ID="12"\n',
        "var/lib/dpkg/status": STATUS,
    }.items():
        at = tmp_path / "root" / path
        at.parent.mkdir(parents=True)
        at.write_text(text)
    return tmp_path / "root"


def test_the_bill_of_materials_of_an_image_lists_its_debian_packages(
    supply_chain: Any, root: Path, tmp_path: Path
) -> None:
    target = tmp_path / "sbom.json"
    assert supply_chain.write_bill(target, "", "docker", root) == 0
    document = json.loads(target.read_text())
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(target.read_text()) is None
    urls = {component["purl"] for component in document["components"]}
    assert {url for url in urls if url.startswith("pkg:deb/")} == {
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64&distro=debian-12&upstream=glibc",
        "pkg:deb/debian/ca-certificates@20230311?arch=all&distro=debian-12&upstream=ca-certificates",
    }
    packages = supply_chain.locked(ROOT / "requirements-s3.lock")
    assert {f"pkg:pypi/{package.name}@{package.version}" for package in packages} <= urls


def test_a_root_without_dpkg_status_gives_one_error_line_and_no_bill(
    supply_chain: Any, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "var/lib/dpkg/status").unlink()
    target = tmp_path / "sbom.json"
    assert supply_chain.write_bill(target, "", "docker", root) == 1
    assert "var/lib/dpkg/status" in capsys.readouterr().err
    assert not target.exists()
