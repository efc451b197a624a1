"""Everything in one command: it starts, recovers, stops, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from aiohttp import web

from cli import child_process, demonstration, guard
from cli.commands import up
from cli.demonstration import Demonstration
from cli.installation import Installation, InstallationAddresses, loopback_variables
from harness import polling
from harness.mariadb import MariaDB, free_port
from tests import web_server
from tests.cli.terminal import open_terminal
from tidings.config.env import SettingsError

pytestmark = pytest.mark.whole_system

API_KEY = "a key of the tests"


class Console:
    """Output that the person at the console sees."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._news = asyncio.Event()

    def print_line(self, line: str) -> None:
        self.lines.append(line)
        self._news.set()

    async def wait_for(self, pattern: str) -> str:
        async with asyncio.timeout(60):
            while True:
                for line in self.lines:
                    if re.search(pattern, line):
                        return line
                self._news.clear()
                await self._news.wait()


@pytest.fixture
def console() -> Console:
    return Console()


def test_the_settings_for_trying_it_need_an_api_on_loopback() -> None:
    on_loopback = {
        "TIDINGS_OUTGOING_ALLOW_WEBHOOKS": "127.0.0.0/8,::1",
        "TIDINGS_REENGAGEMENT_WINDOW": "0",
        "TIDINGS_CONSOLE": "1",
        "TIDINGS_TESTING": "1",
    }
    assert (
        loopback_variables({}, "127.0.0.1")
        == loopback_variables({}, "::1")
        == loopback_variables({}, "localhost")
        == on_loopback
    )
    for host in ("0.0.0.0", "::", "192.0.2.1", "tidings.example"):
        assert loopback_variables({}, host) == {}
    chosen = {"TIDINGS_OUTGOING_ALLOW": "10.0.0.0/8", "TIDINGS_REENGAGEMENT_WINDOW": "1", "TIDINGS_TESTING": "0"}
    assert loopback_variables({**chosen, "TIDINGS_CONSOLE": "0"}, "127.0.0.1") == {}
    rest = {"TIDINGS_REENGAGEMENT_WINDOW": "0", "TIDINGS_CONSOLE": "1", "TIDINGS_TESTING": "1"}
    assert loopback_variables({"TIDINGS_OUTGOING_ALLOW_WEBHOOKS": "none"}, "127.0.0.1") == rest
    # A Coreapp that other machines reach refuses the test mode.
    assert "TIDINGS_TESTING" not in loopback_variables({"TIDINGS_COREAPP_ADDRESS": "0.0.0.0:6252"}, "127.0.0.1")


Make = Callable[[dict[str, str]], Awaitable[Installation]]


@pytest.fixture
async def make(console: Console, tmp_path: Path) -> AsyncIterator[Make]:
    """Function that creates installations: `await make(variables)` returns one in `tmp_path`, not started.

    Installations are closed after the test.
    """
    made: list[Installation] = []
    base = demonstration.environment(os.environ, tmp_path)

    async def build(variables: dict[str, str]) -> Installation:
        installation = Installation({**base, **variables}, console.print_line)
        made.append(installation)
        installation.read()
        return installation

    yield build
    for installation in made:
        await installation.close()


@pytest.mark.parametrize("engine", ["sqlite", "mariadb"])
async def test_a_message_is_delivered_and_read_and_a_restart_keeps_the_password(
    make: Make, console: Console, tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    variables = {}
    if engine == "mariadb":
        server: MariaDB = request.getfixturevalue("mariadb")
        variables = {"WA_DB_ENGINE": "MYSQL", "WA_DB_PORT": str(server.port), "WA_DB_NAME_PREFIX": "whole_"}
    installation = await make(variables)
    where = await installation.start()
    assert where.first_password == "secret"
    assert await Demonstration(where, tmp_path, console.print_line).run(60) == []
    await installation.close()
    again = await make(variables)
    assert not (await again.start()).first_password


async def test_a_new_installation_has_one_approved_template_until_it_is_deleted(make: Make) -> None:
    installation = await make({})
    where = await installation.start()
    async with httpx.AsyncClient(base_url=where.api_url, timeout=60, trust_env=False) as http:
        login = {"new_password": "Tidings-2026!"}
        response = await http.post("/v1/users/login", json=login, auth=("admin", "secret"))
        http.headers["Authorization"] = f"Bearer {response.json()['users'][0]['token']}"
        message = {
            "messaging_product": "whatsapp",
            "to": "15550110001",
            "type": "template",
            "template": {"name": "hello_world", "language": {"code": "en_US"}},
        }
        assert (await http.post("/v25.0/1393060602093303/messages", json=message)).status_code == 200
        templates = "/v25.0/2397639735729717/message_templates"
        assert [one["name"] for one in (await http.get(templates)).json()["data"]] == ["hello_world"]
        assert (await http.delete(f"{templates}?name=hello_world")).json() == {"success": True}
        await installation.close()
        http.base_url = (await (await make({})).start()).api_url
        assert (await http.get(templates)).json()["data"] == []


async def test_the_doctor_finds_no_error_with_a_loopback_webhook(make: Make, tmp_path: Path) -> None:
    installation = await make({})
    where = await installation.start()
    webhook = web.Application()
    webhook.router.add_route("*", "/", _respond_200)
    async with web_server.serving(webhook) as url, httpx.AsyncClient(base_url=where.api_url) as client:
        login = await client.post(
            "/v1/users/login", auth=("admin", where.first_password), json={"new_password": "Tidings-2026!"}
        )
        token = login.json()["users"][0]["token"]
        body = {"webhooks": {"url": f"{url}/"}}
        changed = await client.patch(
            "/v1/settings/application", headers={"Authorization": f"Bearer {token}"}, json=body
        )
        assert changed.status_code == 200, changed.text
        assert [finding for finding in await _examine(tmp_path) if finding["level"] == "error"] == []
        await installation.close()
        stopped = {finding["check"]: finding for finding in await _examine(tmp_path)}
        assert stopped["webhook"]["level"] == "fine", stopped["webhook"]


async def _examine(data_dir: Path) -> list[dict[str, str]]:
    """Run the command as a person types it, with no variable except the directory. Returns its findings."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TIDINGS_", "WA_"))}
    doctor = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli.main", "doctor", "--quick", "--json"),
        env={**environment, "TIDINGS_DATA_DIR": str(data_dir)},
        stdout=subprocess.PIPE,
    )
    said, _ = await doctor.communicate()
    found: list[dict[str, str]] = json.loads(said)["findings"]
    return found


async def _respond_200(_: web.Request) -> web.Response:
    return web.Response()


def list_files_with(directory: Path, text: bytes) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file() and text in path.read_bytes()]


async def test_the_first_password_is_random_and_unlogged_if_the_api_is_reachable(
    make: Make, console: Console, tmp_path: Path
) -> None:
    port = free_port()
    everywhere = {"TIDINGS_API_ADDRESS": f"0.0.0.0:{port}", "TIDINGS_API_TLS": "1", "TIDINGS_AUTO_REGISTER": "0"}
    installation = await make(everywhere)
    where = await installation.start()
    assert len(where.first_password) > 20
    assert where.first_password in up.describe(where, installation, 1.0)
    assert installation.loopback_variables == {}
    await installation.close()
    again = await make(everywhere)
    assert (await again.start()).first_password not in ("", where.first_password)
    assert list_files_with(tmp_path, b"process.ready")
    assert not list_files_with(tmp_path, where.first_password.encode())


@pytest.fixture
def taken() -> Iterator[str]:
    """Yield an address on which a process listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("listener", ["NETWORK_HTTP", "NETWORK_TCP", "COREAPP", "COREAPP_METRICS", "API"])
async def test_a_port_in_use_ends_the_start_with_its_variable(make: Make, listener: str, taken: str) -> None:
    variable = f"TIDINGS_{listener}_ADDRESS"
    installation = await make({variable: taken})
    with pytest.raises(guard.CommandFailure, match=rf"^[a-z]+: {variable} {taken}: .*in use"):
        await installation.start()


async def test_a_page_whose_port_is_in_use_does_not_block_the_start(make: Make, console: Console, taken: str) -> None:
    variable = "TIDINGS_HANDSET_WEB_ADDRESS"
    installation = await make({"TIDINGS_HANDSET_WEB": "1", variable: taken})
    assert (await installation.start()).handset_link == ""
    await console.wait_for(rf"^handset: {variable} {taken}: .*in use.*; continuing without handset")


async def test_an_unregistered_number_does_not_block_the_start(make: Make, console: Console) -> None:
    # Waiting for the lease to expire would take longer than the time in which a child must be ready.
    installation = await make({"TIDINGS_AUTO_REGISTER": "0", "TIDINGS_LEASE_SECONDS": "120", "WA_API_KEY": API_KEY})
    where = await installation.start()
    request = urllib.request.Request(f"{where.api_url}/v1/health", headers={"Authorization": f"Apikey {API_KEY}"})
    response = await asyncio.to_thread(lambda: json.load(urllib.request.urlopen(request, timeout=10)))
    assert response["health"] == {"gateway_status": "unregistered"}


@pytest.mark.parametrize(
    ("api_url", "said"),
    [
        ("http://127.0.0.1:9090", "TIDINGS_API_TLS=1 before this command"),
        ("https://127.0.0.1:9090", "as the API; POST /v1/certificates/external"),
    ],
)
async def test_the_first_screen_explains_https_and_custom_certificates(make: Make, api_url: str, said: str) -> None:
    where = InstallationAddresses(
        api_url, "http://127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "http://127.0.0.1:4", "", 0, (), ""
    )
    lines = up.describe(where, await make({}), 1.0).splitlines()
    assert f"  HTTPS          {said}" in lines
    assert any(api_url in line for line in lines if line.startswith("  API "))


async def test_a_killed_child_is_restarted_on_the_same_address(make: Make, console: Console) -> None:
    installation = await make({})
    await installation.start()
    before = installation.supervisor.pids()
    os.kill(before["network"], signal.SIGKILL)
    await console.wait_for("network ended with status -9; starting it again in 1 s")
    await console.wait_for("network is back")
    after = installation.supervisor.pids()
    assert after["network"] != before["network"]
    assert {**after, "network": 0} == {**before, "network": 0}


async def test_the_link_to_the_console_ends_with_the_first_webapp(make: Make, console: Console) -> None:
    installation = await make({})
    where = await installation.start()
    assert where.console.startswith(f"{where.api_url}/console/enter?key=")
    assert up.describe(where, installation, 1.0).count(where.console) == 1
    async with httpx.AsyncClient() as client:
        for _ in range(2):
            # A preview of the link does not use it.
            assert (await client.get(where.console)).status_code == 200
        os.kill(installation.supervisor.pids()["webapp"], signal.SIGKILL)
        await console.wait_for("webapp is back")
        assert (await client.get(where.console)).status_code == 403
        assert (await client.get(f"{where.api_url}/console/login")).status_code == 200


async def test_the_console_can_be_turned_off(make: Make) -> None:
    installation = await make({"TIDINGS_CONSOLE": "0"})
    where = await installation.start()
    assert where.console == ""
    assert "console        TIDINGS_CONSOLE=1 before this command" in up.describe(where, installation, 1.0)
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"{where.api_url}/console/login")).status_code == 404


async def test_the_page_with_handsets_is_served_and_opened_by_its_link(make: Make) -> None:
    address = f"127.0.0.1:{free_port()}"
    installation = await make({"TIDINGS_HANDSET_WEB": "1", "TIDINGS_HANDSET_WEB_ADDRESS": address})
    where = await installation.start()
    assert where.handset_link.startswith(f"http://{address}/handset/enter/")
    assert where.handset_link in up.describe(where, installation, 1.0)
    async with httpx.AsyncClient(follow_redirects=True) as client:
        assert (await client.get(f"http://{address}/handset")).status_code == 403
        assert "Add a number" in (await client.post(where.handset_link)).text
    assert set(installation.supervisor.pids()) == {"network", "coreapp", "webapp", "robots", "handset"}


async def test_a_restarted_page_keeps_its_sessions_and_prints_another_link(make: Make, console: Console) -> None:
    address = f"127.0.0.1:{free_port()}"
    installation = await make({"TIDINGS_HANDSET_WEB": "1", "TIDINGS_HANDSET_WEB_ADDRESS": address})
    where = await installation.start()
    async with httpx.AsyncClient(follow_redirects=True) as inside, httpx.AsyncClient(follow_redirects=True) as outside:
        assert (await inside.post(where.handset_link)).status_code == 200
        os.kill(installation.supervisor.pids()["handset"], signal.SIGKILL)
        link = (await console.wait_for("handset is back: ")).removeprefix("handset is back: ")
        assert (await inside.get(f"http://{address}/handset")).status_code == 200
        assert (await outside.post(where.handset_link)).status_code == 403
        assert "Add a number" in (await outside.post(link)).text


async def test_closing_ends_every_child_even_a_suspended_one(make: Make, console: Console) -> None:
    installation = await make({})
    await installation.start()
    children = [psutil.Process(pid) for pid in installation.supervisor.pids().values()]
    assert len(children) == 4
    os.kill(installation.supervisor.pids()["network"], signal.SIGSTOP)
    await installation.close(within=3.0)
    assert not any(child.is_running() for child in children)
    assert "network does not stop; it is killed" in console.lines


async def test_a_failed_child_start_reports_the_child_s_error(make: Make, console: Console) -> None:
    # No machine has this address, so the network cannot listen there.
    installation = await make({"TIDINGS_NETWORK_TCP_ADDRESS": "192.0.2.1:9", "TIDINGS_ALLOW_PLAINTEXT": "network"})
    with pytest.raises(Exception, match=r"network: .*192\.0\.2\.1"):
        await installation.start()


# A wrong value of a variable of each process.
WRONG = {
    "TIDINGS_ROBOTS_PER_KIND": "many",
    "TIDINGS_HANDSET_WEB_ADDRESS": "localhost:page",
    "TIDINGS_MAX_UPLOADS": "unlimited",
    "TIDINGS_NETWORK_WORKERS": "none",
    "TIDINGS_COREAPP_ADDRESS": "nowhere",
}


@pytest.mark.parametrize(("name", "value"), WRONG.items())
async def test_a_wrong_setting_of_a_process_prevents_the_start(make: Make, name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"{name}.*{value}"):
        await make({"TIDINGS_HANDSET_WEB": "1", name: value})


async def test_all_wrong_settings_of_an_installation_are_reported_at_once(make: Make, console: Console) -> None:
    own = {"TIDINGS_API_ADDRESS": "here", "TIDINGS_MASTER_KEY": "short"}
    for wrong in (WRONG, WRONG | own):
        with pytest.raises(SettingsError) as raised:
            await make({"TIDINGS_HANDSET_WEB": "1", **wrong})
        for name in wrong:
            assert str(raised.value).count(name) == 1, raised.value
    assert console.lines == []


async def test_an_installation_ignores_addresses_that_it_sets_for_its_processes(make: Make) -> None:
    await make({"TIDINGS_NETWORK_HTTP_URL": "nowhere", "TIDINGS_NETWORK_TCP_TLS": "perhaps"})


async def test_a_business_number_unlike_the_database_s_stops_the_start(make: Make, console: Console) -> None:
    installation = await make({})
    await installation.start()
    await installation.close()
    printed = len(console.lines)
    changed = await make({"TIDINGS_BUSINESS_NUMBER": "+15559999999"})
    with pytest.raises(SettingsError, match="15559999999, but this database is that of 15550000000"):
        await changed.start()
    # No process was started.
    assert not any(line.startswith("starting") for line in console.lines[printed:])
    await changed.close()
    assert changed.supervisor.pids() == {}


async def test_a_second_installation_in_the_same_directory_is_refused(make: Make) -> None:
    await make({})
    with pytest.raises(Exception, match="already running"):
        await make({})


def start_command(name: str, tmp_path: Path) -> subprocess.Popen[str]:
    environment = demonstration.environment(os.environ, tmp_path / "data")
    return subprocess.Popen(
        [sys.executable, "-m", "cli.main", name],
        env={**environment, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def read_until(process: subprocess.Popen[str], pattern: str) -> str:
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if re.search(pattern, line):
            return seen
    raise AssertionError(f"{pattern!r} was never said:\n{seen}")


@pytest.mark.skipif(not shutil.which("curl"), reason="what is pasted needs curl")
def test_the_commands_that_up_prints_work_and_ctrl_c_stops_it_cleanly(tmp_path: Path) -> None:
    process = start_command("up", tmp_path)
    try:
        said = read_until(process, "tidings handset")
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) == 4
        for word in ("is up", "/docs", "/metrics", "admin / secret", "15550110000", "robots.jsonl", "/v1/messages"):
            assert word in said
        assert "  HTTPS          TIDINGS_API_TLS=1 before this command\n" in said
        pasted = said[said.index("TOKEN=") : said.index("Be a recipient")]
        done = subprocess.run(["bash", "-euc", pasted], capture_output=True, text=True, timeout=60)
        assert '"wa_id":"15550110001"' in done.stdout.replace(" ", ""), done
        assert '"messages":[{"id":' in done.stdout.replace(" ", "")
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
        assert process.returncode == 0, rest
        assert rest.rstrip().endswith("stopped")
        assert not any(child.is_running() for child in children)
    finally:
        process.kill()
        process.wait()


def test_children_end_by_themselves_when_up_is_killed(tmp_path: Path) -> None:
    process = start_command("up", tmp_path)
    try:
        read_until(process, "is up")
        children = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        process.communicate()
    _, alive = psutil.wait_procs(children, timeout=30)
    assert len(children) == 4
    assert alive == []


def test_a_successful_demo_exits_with_0_and_leaves_no_files(tmp_path: Path) -> None:
    process = start_command("demo", tmp_path)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    for word in (
        "is sent",
        "is delivered",
        "is read",
        "decrypted: “Hello from Tidings",
        "wrote “Please echo this”",
    ):
        assert word in said
    assert list(tmp_path.glob("tidings-demo-*")) == []


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 130)])
def test_an_interrupted_demo_leaves_no_files_and_no_process(tmp_path: Path, number: int, status: int) -> None:
    process = start_command("demo", tmp_path)
    try:
        read_until(process, "starting webapp")
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == status, said
    assert "Traceback" not in said
    assert len(children) >= 2
    assert not any(child.is_running() for child in children)
    assert list(tmp_path.glob("tidings-demo-*")) == []


def test_an_incomplete_demo_lists_what_is_missing_and_exits_with_1(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "cli.main", "demo", "--timeout", "0"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1, said
    assert "missing after 0 s: the callback “sent” of the message to 15550110001, the callback “delivered” of" in said


def children_of(process: subprocess.Popen[Any]) -> dict[str, psutil.Process]:
    """Return the children by command."""
    found = {}
    for child in psutil.Process(process.pid).children():
        # A child that has just ended, or is just starting, has no command line.
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            found[child.cmdline()[3]] = child
    return found


def is_up(environment: Mapping[str, str], data_dir: Path) -> bool:
    """Return whether the Webapp and the robots are ready, which are the last."""
    host, _, port = environment["TIDINGS_API_ADDRESS"].rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
        return (data_dir / "recipients.sock").exists()
    return False


@contextlib.contextmanager
def up_on(descriptor: int, data_dir: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, str]]]:
    """Run `tidings up` with this console, its logs at an unwritable place, until ready. It is killed at the end."""
    environment = demonstration.environment(os.environ, data_dir)
    data_dir.mkdir()
    (data_dir / "logs").write_text("in the way")
    process = subprocess.Popen(
        [sys.executable, "-m", "cli.main", "up"],
        env={**environment, "TIDINGS_LOG_LEVEL": "info"},
        stdout=descriptor,
        stderr=descriptor,
        start_new_session=True,
    )
    try:
        polling.wait_until(lambda: is_up(environment, data_dir), seconds=60)
        yield process, environment
    finally:
        for child in psutil.Process(process.pid).children() if process.poll() is None else []:
            child.kill()
        process.kill()
        process.wait()


def test_a_closed_terminal_and_unwritable_logs_stop_no_child_and_no_restart(tmp_path: Path) -> None:
    ours, theirs = open_terminal()
    with up_on(theirs, tmp_path / "data") as (process, environment):
        os.close(theirs)
        os.close(ours)
        before = children_of(process)
        before["network"].kill()
        polling.wait_until(lambda: children_of(process).get("network", before["network"]) != before["network"])
        # The Webapp logs a line per request: more than a pipe holds.
        url = f"http://{environment['TIDINGS_API_ADDRESS']}/v1/{'x' * 1000}"
        for _ in range(150):
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(url, timeout=10)
        process.terminate()
        assert process.wait(child_process.STOP_SECONDS + 10) == 0
        assert not any(child.is_running() for child in before.values())


def test_a_second_sigterm_kills_all_children_even_if_output_is_impossible(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full, up_on(full.fileno(), tmp_path / "data") as (process, _):
        children = children_of(process)
        # The network is certainly ready when the robots have been started. A child that is not ready is killed without
        # a wait.
        children["network"].suspend()
        process.terminate()
        # The first SIGTERM waits for the network, which does not respond.
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.terminate()
        assert process.wait(3) == 128 + signal.SIGTERM
        _, alive = psutil.wait_procs(children.values(), timeout=3)
        assert alive == []
