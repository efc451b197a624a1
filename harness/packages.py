"""Debian packages that tests need and no Python package provides; installed once, before the tests start."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

# Programs of a private MariaDB, and their Debian packages. `mariadb-install-db` calls `my_print_defaults`, which is not
# among the dependencies of its package.
MARIADB = {
    "mariadbd": "mariadb-server-core",
    "mariadb-install-db": "mariadb-server-core",
    "my_print_defaults": "mariadb-client-core",
}
# Programs of a private Redis, or of three that form a Redis Cluster.
REDIS = {"redis-server": "redis-server"}
# The program of the guides' commands, which tests execute.
CURL = {"curl": "curl"}
NEEDED = MARIADB | REDIS | CURL
VALKEY_DIRECTORY = Path(__file__).parent.parent / "build" / "valkey"

# Where Debian keeps servers and helper programs; not on the PATH of an ordinary user.
_SEARCH = os.pathsep.join(
    [os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/usr/lib/podman"]
)
_APT = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-o", "DPkg::Lock::Timeout=300"]
_LOCK = Path(tempfile.gettempdir()) / f"tidings-packages-{os.getuid()}.lock"


class PackageMissing(Exception):
    """A program is not on this machine and could not be installed; `str()` names in one line what to install."""


def find(program: str) -> str | None:
    """Return the path of a program; `None` when it is not installed."""
    return shutil.which(program, path=_SEARCH)


def require(programs: Iterable[str], needed: Mapping[str, str] = NEEDED) -> list[str]:
    """Return the paths of these programs, keys of `needed`, after installing the missing packages.

    Of several concurrent processes one installs and the others wait. Raises `PackageMissing`.
    """
    programs = list(programs)
    if _missing(programs, needed):
        with _LOCK.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _install(_missing(programs, needed))
    return [path for path in map(find, programs) if path is not None]


def find_valkey() -> str:
    """Return the path of a Valkey server: the installed one, or Debian's, unpacked into `build/valkey`.

    Debian 12 has it among its backports; its libraries come with `REDIS`. Raises `PackageMissing`.
    """
    found = find("valkey-server")
    unpacked = VALKEY_DIRECTORY / "usr" / "bin" / "valkey-check-rdb"
    if found is None and not unpacked.exists():
        require(REDIS)
        codename = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
        unpack("valkey-tools", VALKEY_DIRECTORY, suite=f"{codename}-backports" if codename == "bookworm" else "")
    # One program whose name selects its function.
    return found or str(_named(unpacked, "valkey-server"))


def _named(program: Path, name: str) -> Path:
    path = program.with_name(name)
    if not path.exists():
        path.symlink_to(program.name)
    return path


def require_file(path: Path, package: str) -> None:
    """Install a package if the file that it provides is missing. Raises `PackageMissing`."""
    if not path.exists():
        with _LOCK.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _install([] if path.exists() else [package])


def unpack(package: str, directory: Path, *, suite: str = "") -> None:
    """Fetch a Debian package and unpack it into a directory, without installing or starting it; needs no privileges.

    Raises `PackageMissing`.

    suite: Debian suite, from this machine's mirror, when it is not one that this machine installs from; its lists are
        kept apart from the machine's own. Empty for the machine's suites.
    """
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise PackageMissing(f"tests need programs that Debian has in {package}: install them")
    with _LOCK.open("w") as lock, tempfile.TemporaryDirectory() as fetched:
        fcntl.flock(lock, fcntl.LOCK_EX)
        print(f"fetching for the tests: {package} ...", flush=True)
        options = _lists_of(suite, Path(fetched)) if suite else []
        failure = _download(package, fetched, options)
        prefix = _administrator()
        if failure and prefix is not None and not suite:
            # The lists of packages are missing or out of date.
            _apt(prefix, ["update"])
            failure = _download(package, fetched, [])
        if failure:
            raise PackageMissing(f"tests need the package {package}, and fetching it failed: {failure}")
        directory.mkdir(parents=True, exist_ok=True)
        (archive,) = Path(fetched).glob("*.deb")
        subprocess.run(["dpkg-deb", "--extract", str(archive), str(directory)], check=True)


def _lists_of(suite: str, directory: Path) -> list[str]:
    """Fetch the lists of a suite into a directory; returns the options with which apt uses them."""
    shown = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"], capture_output=True, text=True
    )
    mirror = next((line for line in shown.stdout.split() if line.rstrip("/").endswith("/debian")), "")
    if not mirror:
        raise PackageMissing(f"tests need packages of Debian's {suite}, and this machine names no mirror of Debian")
    sources = directory / "sources.list"
    sources.write_text(f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {mirror} {suite} main\n")
    (directory / "lists" / "partial").mkdir(parents=True)
    options = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": directory / "lists",
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "APT::Sandbox::User": "root",
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    subprocess.run([*_APT, *words, "update"], stdin=subprocess.DEVNULL, capture_output=True)
    return words


def _download(package: str, directory: str, options: list[str]) -> str:
    command = [*_APT, *options, "download", package]
    done = subprocess.run(command, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return (done.stderr.strip().splitlines() or ["no output"])[-1] if done.returncode else ""


def _missing(programs: Iterable[str], needed: Mapping[str, str]) -> list[str]:
    return sorted({needed[program] for program in programs if find(program) is None})


def _install(packages: list[str]) -> None:
    if not packages:
        return
    names = " ".join(packages)
    if not shutil.which("apt-get"):
        raise PackageMissing(f"tests need programs that Debian has in {names}: install them")
    print(f"installing for the tests: {names} ...", flush=True)
    prefix = _administrator()
    if prefix is None:
        raise PackageMissing(f"tests need the packages {names}: apt-get install {names}")
    install = ["install", "-y", "--no-install-recommends", *packages]
    failure = _apt(prefix, install)
    if failure:
        # The lists of packages are missing or out of date.
        _apt(prefix, ["update"])
        failure = _apt(prefix, install)
    if failure:
        raise PackageMissing(f"tests need the packages {names}, and installing them failed: {failure}")


def _apt(prefix: list[str], words: list[str]) -> str:
    """Run apt; returns the last line of its error, empty on success."""
    command = [*prefix, *_APT, *words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return (done.stderr.strip().splitlines() or ["no output"])[-1] if done.returncode else ""


def _administrator() -> list[str] | None:
    """Return the words before a command that needs root; `None` when this user may not run one."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo and subprocess.run([sudo, "-n", "true"], capture_output=True).returncode == 0:
        return [sudo, "-n"]
    return None


def main() -> int:
    try:
        require(NEEDED)
    except PackageMissing as missing:
        print(missing, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
