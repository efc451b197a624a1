"""`make release` builds the same files from the same commit, and prints one line for what is missing."""

from __future__ import annotations

import configparser
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

import tidings

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / ".ci" / "release.py"
PACKAGES = ("tidings", "webapp", "coreapp", "network", "handset", "cli", "migrations")
SOURCES = (
    *PACKAGES, ".ci", "docker", "docs", "templates", "LICENSE", "MANIFEST.in", "Makefile", "README.md",
    "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", ".dockerignore", "pyproject.toml",
    *sorted(path.name for path in ROOT.glob("requirements*.lock")),
)  # fmt: skip
SECONDS = 1_700_000_000


@pytest.fixture(scope="module")
def release() -> Any:
    spec = importlib.util.spec_from_file_location("release", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def copy_sources(target: Path) -> Path:
    """Copy the files of this checkout that a release is made from."""
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
            shutil.copytree(ROOT / name, target / name, ignore=ignored, dirs_exist_ok=True)
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)
    return target


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def built(release: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Source distribution and wheel of this checkout."""
    folder = tmp_path_factory.mktemp("built")
    sdist = release.build_sdist(copy_sources(folder / "tree"), folder, SECONDS)
    return sdist, release.build_wheel(sdist, folder, SECONDS)


def test_every_place_has_the_same_version(release: Any) -> None:
    version = release.read_version(ROOT)
    assert version == "1.0.0rc1"
    assert tidings.__version__ == version
    assert f"ARG VERSION={version}\n" in (ROOT / "docker" / "Dockerfile").read_text()
    newest = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest[0] in (version, "Unreleased")


def test_the_notes_are_the_section_of_the_version(release: Any, tmp_path: Path) -> None:
    notes = release.read_notes(ROOT, "1.0.0rc1")
    headings = re.findall(r"^### (.+)$", notes, re.MULTILINE)
    assert headings == ["Upgrade notes", "Added", "Changed", "Fixed", "Removed", "Security"]
    assert "## 0.1.0" not in notes
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 2.0\n\n- Two.\n\n## 1x0\n\n- Other.\n")
    assert release.read_notes(tmp_path, "2.0") == "- Two.\n"
    for version in ("1.0", "3.0"):
        with pytest.raises(release.ReleaseFailed, match=f"no section `## {version}`"):
            release.read_notes(tmp_path, version)


def test_two_builds_of_the_same_sources_give_the_same_files(
    release: Any, built: tuple[Path, Path], tmp_path: Path
) -> None:
    tree = copy_sources(tmp_path / "elsewhere" / "tidings")
    for path in tree.rglob("*"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
        path.chmod(path.stat().st_mode & ~0o077)
    sdist = release.build_sdist(tree, tmp_path, SECONDS)
    wheel = release.build_wheel(sdist, tmp_path, SECONDS)
    assert (sdist.name, wheel.name) == ("tidings-1.0.0rc1.tar.gz", "tidings-1.0.0rc1-py3-none-any.whl")
    assert [digest(path) for path in (sdist, wheel)] == [digest(path) for path in built]
    later = release.build_sdist(tree, tmp_path, SECONDS + 60)
    assert digest(later) != digest(built[0])


def test_the_wheel_has_every_file_of_the_packages_and_both_programs(built: tuple[Path, Path]) -> None:
    files = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "migrations/script.py.mako" in files
    assert "migrations/business/0001_users_and_settings.py" in files
    with zipfile.ZipFile(built[1]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        metadata = wheel.read("tidings-1.0.0rc1.dist-info/METADATA").decode()
        programs = configparser.ConfigParser()
        programs.read_string(wheel.read("tidings-1.0.0rc1.dist-info/entry_points.txt").decode())
        assert "tidings-1.0.0rc1.dist-info/licenses/LICENSE" in wheel.namelist()
    assert names == files
    assert "\nVersion: 1.0.0rc1\n" in metadata
    assert set(programs["console_scripts"]) == {"tidings", "tidings-healthcheck"}


def test_the_source_distribution_has_what_the_guides_need_and_no_tests(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as files:
        members = {member.name.removeprefix("tidings-1.0.0rc1/"): member for member in files.getmembers()}
    wanted = {"CHANGELOG.md", "Makefile", "requirements.lock", "docker/Dockerfile", "docs/api.md", ".ci/make-venv"}
    assert wanted <= members.keys()
    assert members[".ci/make-venv"].mode == 0o755
    tops = {name.partition("/")[0] for name in members}
    assert not tops & {"tests", "benchmarks", "harness", "build", "data", ".venv", ".git"}
    assert {(member.uid, member.uname, member.mtime) for member in members.values()} == {(0, "", SECONDS)}


def test_constraints_are_the_pins_of_the_lock_without_hashes(release: Any) -> None:
    lines = release.constraints((ROOT / "requirements-s3.lock").read_text()).splitlines()
    assert any(re.fullmatch(r"fastapi==[\d.]+", line) for line in lines)
    assert any(re.fullmatch(r"uvloop==[\d.]+ ; sys_platform != 'win32'", line) for line in lines)
    assert not any("hash" in line or "\\" in line for line in lines)
    for lock in ("requirements.lock", "requirements-s3.lock"):
        pins = {line.rstrip(" \\") for line in (ROOT / lock).read_text().splitlines() if re.match(r"[a-z]", line)}
        assert len(pins) > 50
        assert pins <= set(lines)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the sources of this checkout in one commit."""
    tree = copy_sources(tmp_path / "checkout")
    git = ["git", "-c", "user.name=T", "-c", "user.email=t@example.com", "-C", str(tree)]
    for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message=all"]):
        subprocess.run([*git, *words], check=True, env={**os.environ, "GIT_COMMITTER_DATE": f"{SECONDS} +0000"})
    return tree


def build(checkout: Path, output: Path, bin_directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command with the programs of one directory."""
    command = [sys.executable, SCRIPT, f"--checkout={checkout}", f"--output={output}", *words]
    environment = {**os.environ, "PATH": str(bin_directory)}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


def put_needed(directory: Path) -> Path:
    """Put links to the programs that a release cannot do without into a directory."""
    for name in ("git", "tar", "gzip"):
        put(directory, name)
    return directory


def put(directory: Path, name: str, script: str = "") -> Path:
    """Put a program into a directory: a script, or a link to the installed program."""
    directory.mkdir(exist_ok=True)
    path = directory / name
    if script:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    else:
        path.symlink_to(shutil.which(name) or name)
    return directory


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_release_has_all_files_with_checksums_and_says_that_the_image_was_skipped(
    checkout: Path, tmp_path: Path
) -> None:
    programs, output = put_needed(tmp_path / "bin"), tmp_path / "dist"
    output.mkdir()
    (output / "tidings-0.1.0-py3-none-any.whl").touch()
    (output / "other").touch()
    done = build(checkout, output, programs)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == ("SKIPPED   container image: none of docker, podman, buildah is installed")
    assert {path.name for path in output.iterdir()} == {
        "RELEASE_NOTES.md",
        "SHA256SUMS",
        "other",
        "tidings-1.0.0rc1-constraints.txt",
        "tidings-1.0.0rc1-py3-none-any.whl",
        "tidings-1.0.0rc1.cdx.json",
        "tidings-1.0.0rc1.tar.gz",
    }
    sums = dict(line.split("  ")[::-1] for line in (output / "SHA256SUMS").read_text().splitlines())
    assert sums == {name: digest(output / name) for name in sums}
    assert len(sums) == 5
    bill = json.loads((output / "tidings-1.0.0rc1.cdx.json").read_text())
    assert bill["metadata"]["component"]["version"] == "1.0.0rc1"
    assert str(tmp_path) not in "".join(path.read_text(errors="replace") for path in output.iterdir())
    before = dict(sums)
    assert build(checkout, output, programs).returncode == 0
    assert dict(line.split("  ")[::-1] for line in (output / "SHA256SUMS").read_text().splitlines()) == before


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_an_image_that_is_required_and_cannot_be_built_fails_the_release(checkout: Path, tmp_path: Path) -> None:
    programs = put(put_needed(tmp_path / "bin"), "docker", "exit 1")
    done = build(checkout, tmp_path / "dist", programs, "--require-image")
    assert done.returncode == 1
    reason = "docker has no daemon here, and neither podman nor buildah is installed"
    assert done.stderr == f"make release: no image: {reason}\n"
    assert not (tmp_path / "dist").exists()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_changed_file_or_a_missing_program_is_one_line(checkout: Path, tmp_path: Path) -> None:
    programs = put_needed(tmp_path / "bin")
    (checkout / "README.md").write_text("changed")
    done = build(checkout, tmp_path / "dist", programs)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == ("make release: README.md differs from the commit that is released: commit or restore it\n")
    (programs / "git").unlink()
    done = build(checkout, tmp_path / "dist", programs)
    assert (done.returncode, done.stderr) == (1, "make release: `git` is not installed\n")


def test_the_image_is_skipped_where_its_base_cannot_be_pulled(
    release: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = put(put(tmp_path / "bin", "docker", "exit 1"), "podman", "echo 'pinging: no such host' >&2; exit 125")
    monkeypatch.setenv("PATH", str(programs))
    assert release.find_engine() == "podman"
    with pytest.raises(release.ImageSkipped) as skipped:
        release.pull_base("podman", "registry.example/python:3.11")
    assert str(skipped.value) == (
        "podman cannot pull the base image registry.example/python:3.11 (no such host); BASE=… names another"
    )


def test_the_packages_of_an_image_are_read_from_its_saved_layers(release: Any, tmp_path: Path) -> None:
    def layer(name: str, files: dict[str, str]) -> None:
        with tarfile.open(tmp_path / name, "w") as archive:
            for path, text in files.items():
                (tmp_path / "content").write_text(text)
                archive.add(tmp_path / "content", path)

    layer("first.tar", {"usr/lib/os-release": "ID=debian\n", "./var/lib/dpkg/status": "Package: old\n"})
    layer("second.tar", {"var/lib/dpkg/status": "Package: libc6\n"})
    (tmp_path / "manifest.json").write_text(json.dumps([{"Layers": ["first.tar", "second.tar"]}]))
    with tarfile.open(tmp_path / "image.tar", "w") as image:
        for name in ("manifest.json", "first.tar", "second.tar"):
            image.add(tmp_path / name, name)
    release.read_root(tmp_path / "image.tar", tmp_path / "root")
    assert (tmp_path / "root" / "etc" / "os-release").read_text() == "ID=debian\n"
    assert (tmp_path / "root" / "var/lib/dpkg/status").read_text() == "Package: libc6\n"
