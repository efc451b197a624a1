"""Fixtures for attacks: the target, the figures, and the form that sets the duration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.security import scene
from tests.security.attack import Attack
from tests.security.figures import FILE, Figures, Form
from tests.security.scene import Target

_FIGURES = pytest.StashKey[Figures]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("security")
    group.addoption("--database", choices=("sqlite", "mariadb"), help="of the installation that is attacked")


@pytest.fixture(scope="session")
def form(is_long: bool) -> Form:
    """Form of the attacks: long for `make test-security`."""
    return Form(is_long)


@pytest.fixture(scope="session")
def _figures(form: Form, pytestconfig: pytest.Config) -> Figures:
    pytestconfig.stash[_FIGURES] = Figures(form)
    return pytestconfig.stash[_FIGURES]


@pytest.fixture
def figures(_figures: Figures, request: pytest.FixtureRequest) -> Figures:
    """Figures of the session, recorded under the name of this test."""
    _figures.test = f"{request.path.relative_to(request.config.rootpath)}::{request.node.name}"
    return _figures


@pytest.fixture(scope="session")
def _shared_target(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config, request: pytest.FixtureRequest
) -> Iterator[Target]:
    mariadb = None
    if pytestconfig.getoption("--database", default=None) == "mariadb":
        mariadb = request.getfixturevalue("mariadb")
    # A separate event loop, which stands still while tests run on theirs: nothing of the target is bound to it.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        running = scene.running(tmp_path_factory.mktemp("attacked"), mariadb)
        target = runner.run(running.__aenter__())
        try:
            yield target
        finally:
            runner.run(running.__aexit__(None, None, None))


@pytest.fixture
async def target(_shared_target: Target) -> AsyncIterator[Target]:
    """Installation under attack. Connections dialled by a test are closed after it."""
    yield _shared_target
    _shared_target.hang_up()


@pytest.fixture
def attack(target: Target, figures: Figures, form: Form) -> Attack:
    """Attacks on the shared target."""
    return Attack(target, figures, form)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    figures = config.stash.get(_FIGURES, None)
    if figures is not None and figures.all:
        terminalreporter.write_sep("=", f"figures, also in {FILE.relative_to(config.rootpath)}")
        terminalreporter.write_line(figures.table())
