"""Rolling upgrade from each supported revision to this one, to the next one, and back, under load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.installation import remove_databases
from harness.mariadb import MariaDB
from harness.processes import THIS
from harness.redis_server import RedisServer
from tests.upgrade import trees
from tests.upgrade.rolling import SECOND, Rolling, running
from tests.upgrade.trees import Supported

pytestmark = pytest.mark.whole_system


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaDB]:
    server = MariaDB()
    server.start()
    yield server
    server.remove()


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    server = RedisServer()
    server.start()
    yield server
    server.remove()


async def settle(rolling: Rolling) -> list[str]:
    """Return a problem when something was not delivered in time."""
    return [] if await rolling.scene.settle() else ["not everything was settled in time"]


@pytest.mark.parametrize("supported", trees.read_supported(), ids=lambda supported: supported.commit[:7])
async def test_a_rolling_upgrade_from_a_supported_revision_can_be_rolled_back(
    tmp_path: Path, mariadb: MariaDB, redis: RedisServer, supported: Supported
) -> None:
    try:
        earlier = trees.check_out(supported.commit, tmp_path)
    except trees.Unavailable as unavailable:
        pytest.fail(str(unavailable), pytrace=False)
    remove_databases(mariadb)
    async with running(tmp_path, mariadb, redis, earlier) as rolling:
        async with rolling.step("before"):
            pass
        async with rolling.step("migrate"):
            await rolling.migrate(THIS)
        again = await rolling.try_restart("coreapp2", earlier)
        if again.refused:
            assert not supported.rolls, again.refused
        await rolling.replace_all(THIS)
        problems = await settle(rolling)
        if supported.rolls:
            await rolling.replace(earlier, reversed(SECOND))
            await rolling.replace(THIS, SECOND)
            problems += await settle(rolling)
        problems += rolling.problems(also=supported.statuses)
    assert not problems, "\n" + "\n".join(problems)


async def test_a_rolling_upgrade_to_the_next_revision_rolls_back_and_contracts(
    tmp_path: Path, mariadb: MariaDB, redis: RedisServer
) -> None:
    expand = (0, 'op.add_column("jobs", sa.Column("next_release", sa.String(40)))')
    contract = (1, 'op.drop_column("jobs", "next_release")')
    following = trees.make_next(tmp_path, "next", [expand])
    contracted = trees.make_next(tmp_path, "after-next", [expand, contract])
    remove_databases(mariadb)
    async with running(tmp_path, mariadb, redis, THIS) as rolling:
        async with rolling.step("migrate, expanding"):
            await rolling.migrate(following)
        assert not (await rolling.try_restart("coreapp2", THIS)).refused
        await rolling.replace_all(following)
        await rolling.replace(THIS, reversed(SECOND))
        await rolling.replace(following, SECOND)
        async with rolling.step("migrate, contracting"):
            await rolling.migrate(contracted)
        assert not (await rolling.try_restart("coreapp2", following)).refused
        assert "need programs from revision" in (await rolling.try_restart("webapp2", THIS)).refused
        await rolling.replace(contracted, SECOND)
        problems = await settle(rolling) + rolling.problems()
    assert not problems, "\n" + "\n".join(problems)


async def test_a_revision_missing_from_the_history_is_reported_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(trees.Unavailable, match="run this in a full clone"):
        trees.check_out("0" * 40, tmp_path)
