"""Every named crash point, hit 20 times in succession: the process dies there, restarts, and dies there again.

On the path of a message the load never stops, and afterwards the ledger must balance. Other points are reached by what
passes them: registration, rotated keys, uploads, a change of the number of shards.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from harness import client, polling, processes
from harness.client import Business, UnexpectedResponse
from harness.http_connection import NoResponse
from harness.installation import Installation
from harness.processes import Process, ProcessEnded
from harness.sink_process import SinkProcess
from tests.crash import table
from tests.crash.scene import ENVIRONMENT, Phase, Scene
from tests.media_samples import PNG
from tests.reliability.scenario import FILE
from tests.security.figures import Figures, Form
from tidings.aio import crashpoints

pytestmark = pytest.mark.whole_system

HITS = 20
RATE = 40.0
SECONDS = 90.0
READER = "15550110000"
DAY_MS = 24 * 3600 * 1000

# On the path of a message: crash point, process, and the highest pass at which it dies.
ON_THE_PATH = (
    (crashpoints.AFTER_COMMIT_BEFORE_REPLY, "coreapp", 20),
    (crashpoints.AFTER_SEAL_BEFORE_COMMIT, "coreapp", 20),
    (crashpoints.AFTER_SEND_BEFORE_MARK, "coreapp", 6),
    (crashpoints.AFTER_ROW_BEFORE_NETWORK_ACK, "coreapp", 6),
    (crashpoints.AFTER_200_BEFORE_MARK, "coreapp", 40),
    (crashpoints.ITEM_IN_PROGRESS, "coreapp", 100),
    (crashpoints.AFTER_DEVICE_ACK_BEFORE_ROW, "network", 6),
    (crashpoints.AFTER_STORE_BEFORE_ACCEPTED, "network", 2),
    (crashpoints.AFTER_ROW_BEFORE_NETWORK_ACK, "robots", 6),
)
OF_SHARDS = (crashpoints.AFTER_SHARDS_TAKEN, crashpoints.AFTER_MOVED_PAGE, crashpoints.AFTER_NEW_LAYOUT)
# Each has a test below.
ELSEWHERE = (
    crashpoints.AFTER_REGISTRATION_BEFORE_COMMIT,
    crashpoints.AFTER_KEYS_BEFORE_UPLOAD,
    crashpoints.AFTER_NEW_KEY_BEFORE_USE,
    crashpoints.AFTER_REWRAPPED_ROW,
    crashpoints.AFTER_FILE_BEFORE_ROW,
    crashpoints.AFTER_SETTLED_PAGE,
)


def test_no_crash_point_is_left_out() -> None:
    assert {point for point, _, _ in ON_THE_PATH} | {*OF_SHARDS, *ELSEWHERE} == set(crashpoints.ALL)


@dataclasses.dataclass(slots=True)
class Deaths:
    """Deaths of one process at one crash point."""

    process: Process
    count: int = 0

    async def die(self, spec: str) -> None:
        """Start the process and wait until it dies at the crash point, which may be before it is ready."""
        with contextlib.suppress(ProcessEnded):
            await self.process.start({"TIDINGS_CRASH_AT": spec})
        async with asyncio.timeout(SECONDS):
            status = await self.process.wait()
        assert status == -signal.SIGKILL, self.process.log_tail()
        self.count += 1


def record(point: str, process: str, deaths: int) -> None:
    figures = Figures(Form(long=True), FILE)
    figures.test = "tests/reliability/test_crash_points.py"
    figures.record(f"{process} dies {point}", "deaths", deaths, HITS, at_least=True)


@contextlib.asynccontextmanager
async def scene_of(tmp_path: Path) -> AsyncIterator[Scene]:
    async with (
        Installation(tmp_path, None, ENVIRONMENT) as installation,
        SinkProcess(tmp_path, installation.webhook_secret, verify_every=1) as sink,
    ):
        await installation.start()
        seed = random.randrange(1_000_000)
        print(f"\nseed {seed}", flush=True)
        scene = Scene(installation, sink, Business(installation.api_port), random.Random(seed))
        await scene.open()
        yield scene


@contextlib.asynccontextmanager
async def under_load(scene: Scene, name: str, rate: float = RATE) -> AsyncIterator[Phase]:
    """Send messages at a rate until the block ends, then check the ledger."""
    phase, is_over = Phase(name), False
    scene.phases.append(phase)

    def work() -> Iterator[tuple[str, str]]:
        while not is_over:
            yield scene.next_message()

    loading = asyncio.create_task(client.open_loop(scene.business, work(), rate))
    try:
        yield phase
    finally:
        is_over = True
        phase.sent = (await loading).sent
    phase.sent += (await client.open_loop(scene.business, [scene.next_message() for _ in range(100)], rate)).sent
    settled = await scene.settle()
    print(f"  {table.describe_phase(phase)}", flush=True)
    problems = table.problems(scene, settled=settled)
    print(f"\n{table.aligned(scene)}\n", flush=True)
    assert not problems, "\n" + "\n".join(problems)


@pytest.mark.parametrize(("point", "name", "most"), ON_THE_PATH)
async def test_the_ledger_balances_after_20_deaths_at_a_point_of_the_path(
    point: str, name: str, most: int, tmp_path: Path
) -> None:
    async with scene_of(tmp_path) as scene:
        process, robots = scene.installation.processes[name], scene.installation.processes["robots"]
        deaths = Deaths(process)
        async with under_load(scene, f"{name} {point}") as phase:
            await process.stop()
            while deaths.count < HITS:
                dying = asyncio.create_task(deaths.die(f"{point}:{scene.rng.randint(1, most)}"))
                if point == crashpoints.AFTER_STORE_BEFORE_ACCEPTED:
                    # The network stores only what a recipient does not acknowledge at once.
                    await _hold_up(robots, dying)
                await dying
                phase.trouble()
            await process.start()
            if point == crashpoints.ITEM_IN_PROGRESS:
                await _release(scene.installation)
        record(point, name, deaths.count)


async def _hold_up(robots: Process, dying: asyncio.Task[None]) -> None:
    """Pause the robots again and again until the other process has died."""
    while not dying.done():
        robots.pause()
        try:
            await asyncio.wait([dying], timeout=1.5)
        finally:
            robots.resume()
        await asyncio.wait([dying], timeout=0.5)


async def _release(installation: Installation) -> None:
    """Release the items that were in hand at three deaths."""
    coreapp = installation.processes["coreapp"]
    await coreapp.stop()
    _tidings(installation, "queue", "release")
    await coreapp.start()


def _tidings(installation: Installation, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**processes.inherited(), **installation.common, **variables}
    command = [sys.executable, "-m", "cli.main", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS)


@pytest.mark.parametrize("point", OF_SHARDS)
async def test_the_ledger_balances_after_20_deaths_in_changes_of_the_number_of_shards(
    point: str, tmp_path: Path
) -> None:
    async with scene_of(tmp_path) as scene:
        coreapp = scene.installation.processes["coreapp"]
        deaths = Deaths(coreapp)
        async with under_load(scene, f"coreapp {point}", 10.0) as phase:
            for hit in range(HITS):
                wanted = 2 if hit % 2 == 0 else 1
                await coreapp.stop()
                dying = asyncio.create_task(deaths.die(f"{point}:1"))
                requested = asyncio.create_task(_request_shards(scene, wanted))
                await dying
                phase.trouble()
                await coreapp.start()
                await requested
                shards = (wanted, wanted, 0)
                await polling.until(lambda shards=shards: scene.shards() == shards, seconds=SECONDS)  # type: ignore[misc]
        record(point, "coreapp", deaths.count)


async def _request_shards(scene: Scene, count: int) -> None:
    """Request a number of shards until the request is known. The response may be lost."""
    async with asyncio.timeout(SECONDS):
        while count not in (scene.shards()[0], scene.shards()[2]):
            with contextlib.suppress(UnexpectedResponse, NoResponse):
                await scene.request_shards(count)
            await asyncio.sleep(0.2)


async def _reads(installation: Installation, business: Business, text: str) -> None:
    """Send a message, and wait until its recipient has shown it."""
    body = {"to": READER, "type": "text", "text": {"body": text}}
    message_id = (await business.check_call("POST", "/v1/messages", body))["messages"][0]["id"]
    await polling.until(lambda: message_id in {line.message_id for line in installation.list_shown()}, seconds=SECONDS)


@pytest.fixture
async def installation(tmp_path: Path) -> AsyncIterator[Installation]:
    environment = {**ENVIRONMENT, "TIDINGS_ROBOTS_KINDS": "11", "TIDINGS_ROBOTS_PER_KIND": "3"}
    async with Installation(tmp_path, None, environment) as prepared:
        yield prepared


async def test_a_number_is_registered_after_20_deaths_before_the_commit(installation: Installation) -> None:
    await installation.start(["network", "robots"])
    deaths = Deaths(installation.processes["coreapp"])
    for _ in range(HITS):
        await deaths.die(crashpoints.AFTER_REGISTRATION_BEFORE_COMMIT)
    await installation.start(["coreapp", "webapp"])
    await _reads(installation, await installation.business(), "after 20 deaths")
    record(crashpoints.AFTER_REGISTRATION_BEFORE_COMMIT, "coreapp", deaths.count)


async def test_keys_are_rotated_after_20_deaths_before_their_upload(installation: Installation) -> None:
    await installation.start()
    business = await installation.business()
    coreapp = installation.processes["coreapp"]
    deaths = Deaths(coreapp)
    left = "SELECT COUNT(*) FROM own_prekeys WHERE kind IN ('signed', 'kyber') AND uploaded = 0"
    for _ in range(HITS):
        await coreapp.stop()
        older = f"UPDATE own_prekeys SET created_at = created_at - {30 * DAY_MS} WHERE kind IN ('signed', 'kyber')"
        await asyncio.to_thread(installation.change, "business", [older])
        await deaths.die(crashpoints.AFTER_KEYS_BEFORE_UPLOAD)
        assert installation.read_value("business", left) == 2
        # Keys are not rotated again before these are uploaded.
        await coreapp.start()
        await polling.until(lambda: installation.read_value("business", left) == 0, seconds=SECONDS)
    await _reads(installation, business, "under a new session")
    record(crashpoints.AFTER_KEYS_BEFORE_UPLOAD, "coreapp", deaths.count)


@pytest.mark.parametrize("point", [crashpoints.AFTER_NEW_KEY_BEFORE_USE, crashpoints.AFTER_REWRAPPED_ROW])
async def test_installation_keys_are_rotated_after_20_deaths(point: str, installation: Installation) -> None:
    await installation.start()
    business = await installation.business()
    tokens = {f"n{n}": f"token {n}" for n in range(HITS + 5)}
    providers = [{"name": name, "type": "www", "config": {"bearer": token}} for name, token in tokens.items()]
    path = "/v1/settings/application/media/providers"
    await business.check_call("POST", path, providers)
    deaths = 0
    for _ in range(HITS):
        killed = await asyncio.to_thread(_tidings, installation, "keys", "rotate", TIDINGS_CRASH_AT=point)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        deaths += 1
    done = await asyncio.to_thread(_tidings, installation, "keys", "rotate")
    assert done.returncode == 0, done.stderr
    assert "0 rows under another" in done.stdout
    await installation.stop()
    await installation.start()
    kept = (await business.check_call("GET", path))["settings"]["application"]["media"]["providers"]
    assert {entry["name"]: entry["config"]["bearer"] for entry in kept} == tokens
    await _reads(installation, business, "under new keys")
    record(point, "tidings keys rotate", deaths)


async def test_acknowledged_uploads_exist_after_20_deaths(installation: Installation) -> None:
    await installation.start()
    business = await installation.business()
    webapp = installation.processes["webapp"]
    deaths, uploaded = Deaths(webapp), []
    url = f"http://127.0.0.1:{business.port}/v1/media"
    headers = {"Authorization": f"Bearer {business.token}"}
    await webapp.stop()
    async with httpx.AsyncClient(headers=headers, trust_env=False, timeout=SECONDS) as http:
        for hit in range(HITS):
            dying = asyncio.create_task(deaths.die(f"{crashpoints.AFTER_FILE_BEFORE_ROW}:{1 + hit % 3}"))
            while not dying.done():
                try:
                    response = await http.post(url, content=PNG, headers={"Content-Type": "image/png"})
                except httpx.TransportError:
                    await asyncio.wait([dying], timeout=0.1)
                else:
                    assert response.status_code == 200
                    uploaded.append(response.json()["media"][0]["id"])
            await dying
        await webapp.start()
        for media_id in uploaded:
            assert (await http.get(f"{url}/{media_id}")).content == PNG
    record(crashpoints.AFTER_FILE_BEFORE_ROW, "webapp", deaths.count)


async def test_group_messages_are_settled_after_20_deaths(installation: Installation) -> None:
    """Each message is left undecided by a network that died, and by another one that died while it settled it."""
    await installation.start()
    business = await installation.business()
    network, robots = installation.processes["network"], installation.processes["robots"]
    (group,) = (await business.check_call("POST", "/v1/groups", {"subject": "Deaths"}))["groups"]
    (invite,) = (await business.check_call("GET", f"/v1/groups/{group['id']}/invite"))["groups"]
    await business.check_call("POST", "/v1/messages", {"to": READER, "type": "text", "text": {"body": invite["link"]}})

    async def has_joined() -> bool:
        (found,) = (await business.check_call("GET", f"/v1/groups/{group['id']}"))["groups"]
        return READER in found["participants"]

    await polling.until(has_joined, seconds=SECONDS)
    deaths, before = Deaths(network), Deaths(network)
    sent = []
    for hit in range(HITS):
        await network.stop()
        dying = asyncio.create_task(before.die(f"{crashpoints.AFTER_STORE_BEFORE_ACCEPTED}@{group['id']}"))
        # A message stays undecided only while its copies are with connected devices.
        body = {"to": READER, "type": "text", "text": {"body": f"connected {hit}"}}
        first = (await business.check_call("POST", "/v1/messages", body))["messages"][0]["id"]
        await polling.until(lambda first=first: first in _shown(installation), seconds=SECONDS)
        robots.pause()
        try:
            body = {"to": group["id"], "recipient_type": "group", "type": "text", "text": {"body": f"group {hit}"}}
            sent.append((await business.check_call("POST", "/v1/messages", body))["messages"][0]["id"])
            await dying
            left = installation.read_value("network", "SELECT COUNT(*) FROM group_messages")
            assert left, "no group message was left undecided"
            await deaths.die(crashpoints.AFTER_SETTLED_PAGE)
        finally:
            robots.resume()
        await network.start()
    await polling.until(lambda: set(sent) <= set(_shown(installation)), seconds=SECONDS)
    assert [one for one in _shown(installation) if one in sent] == sent, "shown twice, or out of order"
    record(crashpoints.AFTER_SETTLED_PAGE, "network", deaths.count)


def _shown(installation: Installation) -> Sequence[str]:
    return [line.message_id for line in installation.list_shown()]
