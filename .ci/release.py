#!/usr/bin/env python3
"""Build the files of a release from the checked-out commit: `make release`. Nothing is published.

The source distribution and the wheel depend only on the commit and on the locked setuptools, so that two builds give
the same bytes: every time stamp is the commit's.
"""

# ruff: noqa: T201, S603

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Lock of the packages that an installation of the wheel may use, with its optional ones.
LOCK = "requirements-s3.lock"
BASE = "docker.io/library/python:3.14-slim-bookworm"
ENGINES = ("docker", "podman", "buildah")
NOTES, CHECKSUMS = "RELEASE_NOTES.md", "SHA256SUMS"
# Files of the image that its bill of materials is made from; the first is a link to the second.
OS_RELEASE, OS_RELEASE_FILE, DPKG_STATUS = "etc/os-release", "usr/lib/os-release", "var/lib/dpkg/status"
BUILD = """\
import os, sys
import setuptools.build_meta as backend
os.umask(0o022)
print(getattr(backend, sys.argv[1])(sys.argv[2]))
"""


class ReleaseFailed(Exception):
    """The release cannot be built. `str()` gives the reason in one line."""


class ImageSkipped(Exception):
    """The image cannot be built on this machine. `str()` gives the reason in one line."""


def run(command: Sequence[str | Path], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Return the standard output of a command. Raises `ReleaseFailed`, for a missing program too."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except FileNotFoundError:
        raise ReleaseFailed(f"`{name}` is not installed") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise ReleaseFailed(f"`{name} {command[1]}` failed: {lines[-1] if lines else 'no output'}")
    return done.stdout.decode(errors="replace")


# --- sources ---


def read_commit(checkout: Path) -> tuple[str, int]:
    """Return the hash and the time (Unix seconds) of the checked-out commit. Raises `ReleaseFailed`."""
    changed = run(["git", "status", "--porcelain", "--untracked-files=no"], cwd=checkout).splitlines()
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise ReleaseFailed(f"{changed[0][3:]}{more} differs from the commit that is released: commit or restore it")
    commit, seconds = run(["git", "log", "-1", "--format=%H %ct"], cwd=checkout).split()
    return commit, int(seconds)


def export(checkout: Path, commit: str, tree: Path) -> None:
    """Write the files of a commit to a new directory. Raises `ReleaseFailed`."""
    archive = tree.with_name(f"{tree.name}.tar")
    run(["git", "archive", "--format=tar", f"--output={archive}", commit], cwd=checkout)
    tree.mkdir()
    run(["tar", "--extract", "--no-same-owner", "--file", archive, "--directory", tree])
    archive.unlink()


def read_version(tree: Path) -> str:
    """Return the version in `pyproject.toml`."""
    return str(tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def read_notes(tree: Path, version: str) -> str:
    """Return the changelog's section of a version, without its heading. Raises `ReleaseFailed`."""
    text = (tree / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(version)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None or not found[1].strip():
        raise ReleaseFailed(f"CHANGELOG.md has no section `## {version}`, the version in pyproject.toml")
    return found[1].strip() + "\n"


# --- distributions ---


def build_sdist(tree: Path, folder: Path, seconds: int) -> Path:
    """Build the source distribution of a tree. Raises `ReleaseFailed`.

    seconds: time stamp of all files, Unix seconds
    """
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        name = _build("build_sdist", tree, Path(scratch), seconds)
        _normalise(Path(scratch) / name, folder / name, seconds)
    return folder / name


def build_wheel(sdist: Path, folder: Path, seconds: int) -> Path:
    """Build the wheel from a source distribution. Raises `ReleaseFailed`.

    seconds: time stamp of all files, Unix seconds
    """
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        run(["tar", "--extract", "--no-same-owner", "--file", sdist, "--directory", scratch])
        (tree,) = Path(scratch).iterdir()
        name = _build("build_wheel", tree, folder, seconds)
    return folder / name


def _build(call: str, tree: Path, folder: Path, seconds: int) -> str:
    """Call a function of the build backend in a tree. Returns the file's name."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        "SOURCE_DATE_EPOCH": str(seconds),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return run([sys.executable, "-c", BUILD, call, folder], cwd=tree, env=environment).splitlines()[-1]


def _normalise(archive: Path, target: Path, seconds: int) -> None:
    """Copy a compressed archive with sorted members, one time stamp, no owner, and the modes 0755 and 0644."""
    with tarfile.open(archive) as source, io.BytesIO() as buffer:
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as files:
            for member in sorted(source.getmembers(), key=lambda one: one.name):
                member.mtime, member.pax_headers = seconds, {}
                member.uid = member.gid = 0
                member.uname = member.gname = ""
                member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
                files.addfile(member, source.extractfile(member) if member.isfile() else None)
        _compress(buffer.getvalue(), target, seconds)


def _compress(content: bytes, target: Path, seconds: int) -> None:
    with (
        target.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=file, mtime=seconds) as compressed,
    ):
        compressed.write(content)


def constraints(lock: str) -> str:
    """Return the versions of a lock without hashes, as constraints for pip."""
    lines = [line.rstrip("\\").rstrip() for line in lock.splitlines()]
    return "".join(f"{line}\n" for line in lines if "==" in line and not line.startswith(" "))


# --- image ---


def find_engine() -> str:
    """Return the first program that can build images here. Raises `ImageSkipped`."""
    installed = [name for name in ENGINES if shutil.which(name)]
    for name in installed:
        # The client of Docker may be installed without its daemon.
        if name != "docker" or subprocess.run([name, "info"], capture_output=True, check=False).returncode == 0:
            return name
    if installed:
        raise ImageSkipped("docker has no daemon here, and neither podman nor buildah is installed")
    raise ImageSkipped(f"none of {', '.join(ENGINES)} is installed")


def pull_base(engine: str, base: str) -> None:
    """Pull the base image unless it is present. Raises `ImageSkipped`."""
    if subprocess.run([engine, "inspect", "--type=image", base], capture_output=True, check=False).returncode:
        try:
            run([engine, "pull", base])
        except ReleaseFailed as failed:
            reason = str(failed).rpartition(": ")[2]
            raise ImageSkipped(f"{engine} cannot pull the base image {base} ({reason}); BASE=… names another") from None


def build_image(engine: str, tree: Path, target: Path, arguments: Mapping[str, str], options: Sequence[str]) -> None:
    """Build the image and save it as a compressed archive for `docker load`. Raises `ReleaseFailed`.

    arguments: of the Dockerfile
    options:   further options of the engine's `build`
    """
    image = f"localhost/tidings:{arguments['VERSION']}"
    words = [f"--build-arg={name}={value}" for name, value in arguments.items()]
    # Other formats have no health check.
    words += [] if engine == "docker" else ["--format=docker"]
    run([engine, "build", *words, *options, f"--file={tree / 'docker' / 'Dockerfile'}", f"--tag={image}", str(tree)])
    saved = target.with_name("image.tar")
    if engine == "buildah":
        run([engine, "push", image, f"docker-archive:{saved}:{image}"])
    else:
        run([engine, "save", f"--output={saved}", image])
    with saved.open("rb") as source, gzip.GzipFile(target, "wb", compresslevel=6, mtime=0) as compressed:
        shutil.copyfileobj(source, compressed)


def read_root(image: Path, root: Path) -> None:
    """Write the files for the bill of materials from an uncompressed image archive to `root`."""
    with tarfile.open(image) as files:
        (manifest,) = json.load(_member(files, "manifest.json"))
        for layer in manifest["Layers"]:
            with tarfile.open(fileobj=_member(files, layer)) as content:
                present = {one.name.removeprefix("./"): one for one in content.getmembers() if one.isfile()}
                for name in present.keys() & {OS_RELEASE_FILE, DPKG_STATUS}:
                    (root / name).parent.mkdir(parents=True, exist_ok=True)
                    (root / name).write_bytes(_member(content, present[name]).read())
    (root / OS_RELEASE).parent.mkdir(exist_ok=True)
    (root / OS_RELEASE).symlink_to(f"../{OS_RELEASE_FILE}")


def _member(files: tarfile.TarFile, name: str | tarfile.TarInfo) -> io.BytesIO:
    found = files.extractfile(name)
    if found is None:
        raise ReleaseFailed(f"the image archive has no file {name}")
    return io.BytesIO(found.read())


# --- command ---


def write_bill(target: Path, root: Path | None = None) -> None:
    """Write the bill of materials of the wheel, or of the image with this root directory. Raises `ReleaseFailed`."""
    command = [sys.executable, str(ROOT / ".ci" / "supply_chain.py"), "sbom", str(target)]
    run([*command, *([f"--root={root}"] if root else [])])


def release(folder: Path, checkout: Path, options: argparse.Namespace) -> str:
    """Build all files into an empty folder. Returns why there is no image; empty if there is one."""
    commit, seconds = read_commit(checkout)
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        export(checkout, commit, tree)
        version = read_version(tree)
        (folder / NOTES).write_text(read_notes(tree, version), encoding="utf-8")
        build_wheel(build_sdist(tree, folder, seconds), folder, seconds)
        pins = constraints((tree / LOCK).read_text(encoding="utf-8"))
        (folder / f"tidings-{version}-constraints.txt").write_text(pins, encoding="utf-8")
        write_bill(folder / f"tidings-{version}.cdx.json")
        arguments = {"PYTHON": options.base, "VERSION": version, "REVISION": commit}
        try:
            engine = find_engine()
            pull_base(engine, options.base)
        except ImageSkipped as skipped:
            return str(skipped)
        image = folder / f"tidings-{version}-image.tar.gz"
        # A fresh tree: the build of the source distribution has written into the other one.
        export(checkout, commit, Path(scratch) / "context")
        build_image(engine, Path(scratch) / "context", image, arguments, options.build_option)
        root = Path(scratch) / "root"
        read_root(folder / "image.tar", root)
        (folder / "image.tar").unlink()
        write_bill(folder / f"tidings-{version}-image.cdx.json", root)
    return ""


def write_checksums(folder: Path) -> None:
    """Write the SHA-256 of every file in the form of `sha256sum`."""
    lines = []
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def replace(built: Path, target: Path) -> None:
    """Move the files to the target folder, and remove those of an earlier release from it."""
    target.mkdir(parents=True, exist_ok=True)
    for path in [*target.glob("tidings-*"), target / NOTES, target / CHECKSUMS]:
        path.unlink(missing_ok=True)
    for path in sorted(built.iterdir()):
        shutil.move(path, target / path.name)
        size = (target / path.name).stat().st_size
        print(f"{size / 1e6:8.2f} MB  {target / path.name}")


def main() -> int:
    """Build the release. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Build the files of a release; nothing is published.")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", metavar="FOLDER", help="(default: dist)")
    parser.add_argument("--checkout", type=Path, default=ROOT, metavar="FOLDER", help="(default: this one)")
    parser.add_argument("--base", default=BASE, help="base image with Python (default: %(default)s)")
    parser.add_argument("--build-option", action="append", default=[], help="of the engine's `build`; may be repeated")
    parser.add_argument("--require-image", action="store_true", help="fail if the image cannot be built here")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as built:
            skipped = release(Path(built), options.checkout, options)
            if skipped and options.require_image:
                raise ReleaseFailed(f"no image: {skipped}")
            write_checksums(Path(built))
            replace(Path(built), options.output)
    except ReleaseFailed as failed:
        print(f"make release: {failed}", file=sys.stderr)
        return 1
    if skipped:
        print(f"SKIPPED   container image: {skipped}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
