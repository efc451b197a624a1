"""Version and build of the Python interpreter: whether it was optimised, and its JIT compiler.

`.ci/find-python` runs this file with each Python on the PATH, so it imports nothing but the standard library.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import platform
import sys
import sysconfig
from collections.abc import Mapping

# Oldest and newest version that the tests run on.
OLDEST, NEWEST = (3, 11), (3, 15)
# Compiler flags of a build with profile-guided optimisation (PGO), of GCC and Clang.
_PROFILE_FLAGS = ("-fprofile-use", "-fprofile-instr-use")
_FLAGS = ("PY_CFLAGS", "PY_CFLAGS_NODIST", "PY_CORE_CFLAGS", "PY_LDFLAGS_NODIST", "PY_CORE_LDFLAGS")


@dataclasses.dataclass(frozen=True)
class InterpreterBuild:
    """Interpreter as it was compiled."""

    name: str  # `CPython`
    version: tuple[int, int, int]
    pgo: bool | None  # built with profile-guided optimisation; `None` if the build does not record it
    lto: bool | None  # built with link-time optimisation; `None` if the build does not record it
    jit: str  # state of the JIT compiler: `no JIT`, `JIT off`, `JIT on` or `JIT unknown`

    @property
    def number(self) -> str:
        """Version number, such as `3.14.0`."""
        return ".".join(map(str, self.version))

    @property
    def is_tested(self) -> bool:
        """Return whether the tests run on this version."""
        return OLDEST <= self.version[:2] <= NEWEST

    @property
    def is_optimised(self) -> bool:
        """Return whether the build has PGO. Builds that do not record it are those of Debian and Ubuntu, which have."""
        return self.pgo is not False

    @property
    def compilation(self) -> str:
        """Optimisations and JIT in words."""
        if self.pgo is None and self.lto is None:
            return f"PGO and LTO not recorded, {self.jit}"
        return f"{_words('PGO', self.pgo)}, {_words('LTO', self.lto)}, {self.jit}"

    def __str__(self) -> str:
        return f"{self.name} {self.number} ({self.compilation})"


def _words(name: str, is_built: bool | None) -> str:
    if is_built is None:
        return f"{name} not recorded"
    return name if is_built else f"no {name}"


def read() -> InterpreterBuild:
    """Return the build of the running interpreter."""
    return describe(sysconfig.get_config_vars(), _read_jit())


def describe(variables: Mapping[str, object], jit: str) -> InterpreterBuild:
    """Return the build that the variables of `sysconfig` describe.

    Debian and Ubuntu remove the flags of both optimisations from these variables, so that they do not apply to
    extension modules. They leave `PGO_PROF_USE_FLAG` empty, which every other build sets, optimised or not.
    """
    arguments = str(variables.get("CONFIG_ARGS") or "")
    flags = " ".join(str(variables.get(name) or "") for name in _FLAGS)
    is_recorded = bool(arguments) and bool(variables.get("PGO_PROF_USE_FLAG"))
    pgo = "--enable-optimizations" in arguments or any(flag in flags for flag in _PROFILE_FLAGS)
    lto = "--with-lto" in arguments or "-flto" in flags
    if jit == "no JIT" and "-D_Py_JIT" in flags:
        jit = "JIT unknown"
    return InterpreterBuild(
        platform.python_implementation(),
        sys.version_info[:3],
        pgo or (False if is_recorded else None),
        lto or (False if is_recorded else None),
        jit,
    )


def _read_jit() -> str:
    """Return the state of the JIT compiler, which the interpreter reports from 3.14 on."""
    jit = getattr(sys, "_jit", None)
    if jit is None or not jit.is_available():
        return "no JIT"
    return "JIT on" if jit.is_enabled() else "JIT off"


def _obstacle(build: InterpreterBuild) -> str:
    """Return why no environment for Tidings can be made with this interpreter; empty if one can be made."""
    if build.name != "CPython":
        return "is not CPython"
    if build.version[:2] < OLDEST:
        return "is older than {}.{}".format(*OLDEST)
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "is free-threaded"
    if importlib.util.find_spec("ensurepip") is None:
        return "cannot make an environment: on Debian and Ubuntu install the package python3-venv"
    return ""


def _print_rank(path: str) -> None:
    """Print one line of fields for `.ci/find-python`: rank, real path, path, version, description.

    Ranks, from low to high: has an obstacle, is not tested, is not optimised, is optimised; within each by version.
    """
    build = read()
    obstacle = _obstacle(build)
    if obstacle:
        rank = 0
    elif not build.is_tested:
        rank = 1
    else:
        rank = 3 if build.is_optimised else 2
    order = ".".join(f"{number:03}" for number in build.version)
    words = f"{build} {obstacle}".rstrip()
    print(f"{rank} {order}", os.path.realpath(sys.executable), path, build.number, words, sep="\t")  # noqa: T201


if __name__ == "__main__":
    _print_rank(sys.argv[1])
