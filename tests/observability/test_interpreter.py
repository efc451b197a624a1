"""Version and build of the interpreter, from the variables of `sysconfig`."""

from __future__ import annotations

import platform

import pytest

from tidings.observability import interpreter

# Variables of real builds, as far as they matter here.
SOURCE = {"CONFIG_ARGS": "'--prefix=/opt'", "PGO_PROF_USE_FLAG": "-fprofile-use -fprofile-correction"}
IMAGE = SOURCE | {"CONFIG_ARGS": "'--enable-option-checking=fatal' '--enable-optimizations' '--with-lto'"}
CLANG = SOURCE | {"PY_CFLAGS_NODIST": "-fprofile-instr-use=code.profclangd", "PY_LDFLAGS_NODIST": "-flto=thin"}
ONLY_PGO = SOURCE | {"CONFIG_ARGS": "'--enable-optimizations' '--without-lto'"}
DEBIAN = {"CONFIG_ARGS": "'--enable-shared' '--with-dtrace'", "PGO_PROF_USE_FLAG": "", "PY_CFLAGS": "-g -O2"}


@pytest.mark.parametrize(
    ("variables", "compilation", "is_optimised"),
    [
        (SOURCE, "no PGO, no LTO, no JIT", False),
        (IMAGE, "PGO, LTO, no JIT", True),
        (CLANG, "PGO, LTO, no JIT", True),
        (ONLY_PGO, "PGO, no LTO, no JIT", True),
        (DEBIAN, "PGO and LTO not recorded, no JIT", True),
        (DEBIAN | {"CONFIG_ARGS": "'--with-lto'"}, "PGO not recorded, LTO, no JIT", True),
        ({}, "PGO and LTO not recorded, no JIT", True),
    ],
)
def test_optimisations_are_read_from_flags_and_configure(
    variables: dict[str, object], compilation: str, is_optimised: bool
) -> None:
    build = interpreter.describe(variables, "no JIT")
    assert (build.compilation, build.is_optimised) == (compilation, is_optimised)


def test_a_jit_that_the_interpreter_does_not_report_is_unknown() -> None:
    with_jit = SOURCE | {"PY_CORE_CFLAGS": "-D_Py_TIER2=3 -D_Py_JIT"}
    assert interpreter.describe(with_jit, "no JIT").jit == "JIT unknown"
    assert interpreter.describe(with_jit, "JIT off").jit == "JIT off"


def test_the_running_interpreter_is_described_with_its_version() -> None:
    build = interpreter.read()
    assert str(build).startswith(f"CPython {platform.python_version()} (")
    assert build.is_tested
    assert build.jit in ("no JIT", "JIT off", "JIT on", "JIT unknown")
