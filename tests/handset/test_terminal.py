"""Handset in a terminal that a test types into."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from handset.settings import RobotsSettings, TerminalSettings, WebSettings
from handset.terminal.terminal import run_terminal
from tests.handset.business import business
from tests.handset.conftest import COMPANY, SECRETS, LiveNetwork, robots_running
from tests.handset.scripted import BUSINESS
from tidings.config.env import SettingsError
from tidings.installation.settings import DatabaseSettings
from tidings.pages.printable import printable

ADA = "15550100001"
DATA = Path(__file__).parents[1] / "data" / "api"


class Session:
    """Person at the terminal: types lines, waits for lines."""

    def __init__(self, settings: TerminalSettings, number: str = f"+{ADA}") -> None:
        self.stop = asyncio.Event()
        self.lines: list[str] = []
        self._typed: asyncio.Queue[str | None] = asyncio.Queue()
        self._changed = asyncio.Event()
        self.task = asyncio.create_task(run_terminal(number, settings, self.stop, typed=self, write=self._write))
        self.task.add_done_callback(lambda _: self._changed.set())

    async def read(self, prompt: str) -> str | None:
        return await self._typed.get()

    def _write(self, text: str) -> None:
        self.lines.append(text)
        self._changed.set()

    def type(self, line: str | None) -> None:
        self._typed.put_nowait(line)

    async def until(self, pattern: str) -> str:
        async with asyncio.timeout(30):
            while True:
                for line in self.lines:
                    if re.search(pattern, line):
                        return line
                assert not self.task.done(), self.lines
                self._changed.clear()
                await self._changed.wait()

    async def until_count(self, pattern: str, count: int) -> None:
        async with asyncio.timeout(30):
            while len([line for line in self.lines if re.search(pattern, line)]) < count:
                self._changed.clear()
                await self._changed.wait()

    async def ended(self) -> int:
        async with asyncio.timeout(30):
            return await self.task


@contextlib.asynccontextmanager
async def at_the_terminal(settings: TerminalSettings, number: str = f"+{ADA}") -> AsyncIterator[Session]:
    session = Session(settings, number)
    try:
        yield session
    finally:
        session.stop.set()
        await session.ended()


def settings_for(network: LiveNetwork, folder: Path, *, key: str = SECRETS.registration_key) -> TerminalSettings:
    folder.mkdir(exist_ok=True)
    return TerminalSettings(
        data_dir=folder,
        database=DatabaseSettings(f"sqlite+aiosqlite:///{folder / 'handset.db'}", pool_size=3),
        secrets=dataclasses.replace(SECRETS, registration_key=key),
        http_url=network.http_url,
        files=folder / "files",
    )


async def test_a_message_is_shown_with_receipts_and_a_typed_reply_arrives(
    live_network: LiveNetwork, tmp_path: Path
) -> None:
    async with (
        business(live_network, tmp_path) as sender,
        at_the_terminal(settings_for(live_network, tmp_path / "ada")) as ada,
    ):
        await ada.until("Connected")
        message = await sender.send(ADA, "hello Ada")
        await ada.until(rf"\+{BUSINESS}: hello Ada")
        await sender.until(lambda: sender.events(message) == ["delivered", "read"])
        ada.type("hello back")
        await sender.until(lambda: [m.text for m in sender.messages] == ["hello back"])


async def test_a_text_that_starts_with_a_slash_is_typed_with_two(live_network: LiveNetwork, tmp_path: Path) -> None:
    async with (
        business(live_network, tmp_path) as sender,
        at_the_terminal(settings_for(live_network, tmp_path / "ada")) as ada,
    ):
        await ada.until("Connected")
        ada.type("//quit")
        await ada.until("Choose a recipient")
        ada.type(f"/to {BUSINESS}")
        ada.type("/etc/hosts is a file")
        await ada.until("There is no /etc/hosts; a text that starts with / is typed with //")
        texts = ["/quit now", "/", "//two", "/send"]
        for text in texts:
            ada.type(f"/{text}")
        await sender.until(lambda: [m.text for m in sender.messages] == texts)
        ada.type("/help")
        await ada.until("//TEXT +sends /TEXT")


async def test_a_reply_is_shown_with_the_message_it_answers(live_network: LiveNetwork, tmp_path: Path) -> None:
    settings = settings_for(live_network, tmp_path / "ada")
    text = {"type": "text", "text": {"body": "Soup"}}
    async with business(live_network, tmp_path) as sender:
        assert sender.fleet is not None
        async with at_the_terminal(settings) as ada:
            await ada.until("Connected")
            question = await sender.send(ADA, "Soup or pasta?\nBoth?")
            await ada.until("Soup or pasta")
            await sender.fleet.send_content(BUSINESS, ADA, {**text, "context": {"id": question}})
            await ada.until(r"\+15550000000: \(answers “Soup or pasta\?”\)\n  \| Soup")
            ada.type("what is there?")
            await sender.until(lambda: len(sender.messages) == 1)
            reply = {**text, "context": {"id": sender.messages[0].id}}
            await sender.fleet.send_content(BUSINESS, ADA, reply)
            await ada.until(r"\(answers “what is there\?”\)\n  \| Soup")
            await sender.fleet.send_content(BUSINESS, ADA, {**text, "context": {"id": "gBEG-unseen"}})
            await ada.until(r"\(answers gBEG-unseen\)\n  \| Soup")


async def test_a_list_is_shown_with_its_rows_and_the_selected_row_reaches_the_business(
    live_network: LiveNetwork, tmp_path: Path
) -> None:
    settings = settings_for(live_network, tmp_path / "ada").model_copy(update={"name": "Ada"})
    good = json.loads((DATA / "messages" / "interactive.json").read_text())["good"]
    template = json.loads((DATA / "messages" / "template.json").read_text())["good"]["order"]["content"]
    async with business(live_network, tmp_path) as sender, at_the_terminal(settings) as ada:
        await ada.until("Connected")
        ada.type("/pick 1")
        await ada.until("Choose a recipient")
        assert sender.fleet is not None
        listed = await sender.fleet.send_content(BUSINESS, ADA, good["list"]["content"])
        shown = await ada.until("What would you like")
        assert "\n  |   1. Soup (of the day)\n  |   2. Pasta\n  | Cold\n  |   3. Salad\n" in shown
        assert "/pick N" in shown
        ada.type("/pick 9")
        await ada.until("Use /pick N, from 1 to 3")
        ada.type("/pick 3")
        await sender.until(lambda: len(sender.messages) == 1)
        reply = json.loads(sender.messages[0].raw)
        assert reply["interactive"] == {"type": "list_reply", "list_reply": {"id": "salad", "title": "Salad"}}
        assert (reply["context"]["id"], reply["profile"]) == (listed, {"name": "Ada"})

        await sender.fleet.send_content(BUSINESS, ADA, template)
        await ada.until("Hello Ada, your order of")
        ada.type("/pick 4")
        await ada.until("^  SAVE5 is copied$")
        ada.type("/pick 1")
        ada.type("/location 48.2 16.4 Wien")
        ada.type("/dance")
        await ada.until("There is no /dance")
        await sender.until(lambda: [m.type for m in sender.messages] == ["interactive", "button", "location"])


async def test_a_handset_can_send_the_first_message_and_shows_receipts(
    live_network: LiveNetwork, robots_settings: RobotsSettings, tmp_path: Path
) -> None:
    async with robots_running(robots_settings), at_the_terminal(settings_for(live_network, tmp_path / "ada")) as ada:
        await ada.until("Connected")
        ada.type("to whom?")
        await ada.until("^Choose a recipient")
        ada.type("/to +15550140001")
        ada.type("echo this")
        await ada.until("read by")
        await ada.until(r"\+15550140001: echo this")
        ada.type("/to 15559999999")
        ada.type("nobody there")
        await ada.until(r"not sent: \+15559999999 is not registered")


async def test_a_restarted_handset_does_not_register_again(live_network: LiveNetwork, tmp_path: Path) -> None:
    settings = settings_for(live_network, tmp_path / "ada")
    async with business(live_network, tmp_path) as sender:
        async with at_the_terminal(settings) as ada:
            await ada.until("Connected")
            first = await sender.send(ADA, "one")
            await sender.until(lambda: "read" in sender.events(first))
            ada.type("/quit")
            assert await ada.ended() == 0
        await sender.send(ADA, "two")
        async with at_the_terminal(settings) as ada:
            await ada.until(": two")
            assert not [line for line in ada.lines if "is registered" in line or ": one" in line]
            # The one peer that it knows is still available.
            ada.type("a reply")
            await sender.until(lambda: [m.text for m in sender.messages] == ["a reply"])


@pytest.mark.parametrize("key", ["", "a key of another installation"])
async def test_the_registration_code_is_requested_without_a_registration_key(
    live_network: LiveNetwork, tmp_path: Path, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    caplog.set_level(logging.INFO)
    async with at_the_terminal(settings_for(live_network, tmp_path / "ada", key=key)) as ada:
        await ada.until("has printed a code")
        # An empty line is no code: the prompt is repeated.
        ada.type("")
        ada.type("000000x")
        await ada.until("code is wrong")
        (code,) = [record.code for record in caplog.records if record.getMessage() == "code.issued"]  # type: ignore[attr-defined]
        ada.type(f" {code[:3]} {code[3:]} ")
        await ada.until("Connected")


@pytest.mark.parametrize("key", [SECRETS.registration_key, ""])
async def test_a_number_of_a_business_is_refused(live_network: LiveNetwork, tmp_path: Path, key: str) -> None:
    said: list[str] = []
    settings = settings_for(live_network, tmp_path, key=key)
    assert await run_terminal(f"+{COMPANY}", settings, asyncio.Event(), write=said.append) == 1
    assert said[-1] == f"+{COMPANY} is a business's number, which its Coreapp registers with the registration key."


async def test_a_locked_number_registers_with_its_code_and_pin(
    live_network: LiveNetwork, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    owner = settings_for(live_network, tmp_path / "owner").model_copy(update={"pin": "246813"})
    async with at_the_terminal(owner) as ada:
        await ada.until("Connected")
    async with at_the_terminal(settings_for(live_network, tmp_path / "other", key="")) as other:
        await other.until("has printed a code")
        (code,) = [record.code for record in caplog.records if record.getMessage() == "code.issued"]  # type: ignore[attr-defined]
        other.type(code)
        await other.until("registration lock")
        other.type("135792")
        await other.until("is wrong")
        other.type("246 813")
        await other.until("Connected")


def test_a_pin_is_6_to_20_digits(tmp_path: Path) -> None:
    directory = {"TIDINGS_DATA_DIR": str(tmp_path)}
    assert TerminalSettings.read({**directory, "TIDINGS_HANDSET_PIN": "246813"}).pin == "246813"
    with pytest.raises(SettingsError, match="TIDINGS_HANDSET_PIN"):
        TerminalSettings.read({**directory, "TIDINGS_HANDSET_PIN": "12345"})


async def test_quit_leaves_whatever_follows_it(live_network: LiveNetwork, tmp_path: Path) -> None:
    async with at_the_terminal(settings_for(live_network, tmp_path)) as ada:
        await ada.until("Connected")
        ada.type(" /quit now")
        assert await ada.ended() == 0


async def test_end_of_input_stops_the_terminal_after_sending_typed_messages(
    live_network: LiveNetwork, tmp_path: Path
) -> None:
    async with business(live_network, tmp_path) as sender:
        session = Session(settings_for(live_network, tmp_path / "ada"))
        await session.until("Connected")
        session.type(f"/to {BUSINESS}")
        session.type("last words")
        session.type(None)
        assert await session.ended() == 0
        await sender.until(lambda: [m.text for m in sender.messages] == ["last words"])


async def test_an_unavailable_network_is_reported_once_and_retried(live_network: LiveNetwork, tmp_path: Path) -> None:
    await live_network.stop()
    async with at_the_terminal(settings_for(live_network, tmp_path / "ada")) as ada:
        await ada.until("No answer from the network.*Trying again")
        await live_network.start()
        await ada.until("Connected")
        await live_network.stop()
        await ada.until("The network is unreachable.*Trying again")
        await live_network.start()
        await ada.until_count("Connected", 2)
        assert len([line for line in ada.lines if "Trying again" in line]) == 2


@pytest.mark.parametrize("number", ["", "+12", "+1555010000x", "1" * 16])
async def test_an_invalid_number_is_reported_in_one_line(
    live_network: LiveNetwork, tmp_path: Path, number: str
) -> None:
    session = Session(settings_for(live_network, tmp_path / "ada"), number)
    assert await session.ended() == 2
    assert len(session.lines) == 1
    assert "is not a phone number" in session.lines[0]


async def test_a_number_already_running_is_reported_in_one_line(live_network: LiveNetwork, tmp_path: Path) -> None:
    settings = settings_for(live_network, tmp_path / "ada")
    async with at_the_terminal(settings) as ada:
        await ada.until("Connected")
        second = Session(settings)
        assert await second.ended() == 1
        assert len(second.lines) == 1
        assert "already running" in second.lines[0]


async def test_the_terminal_refuses_a_number_of_the_robots(
    live_network: LiveNetwork, robots_settings: RobotsSettings
) -> None:
    async with robots_running(robots_settings):
        session = Session(settings_for(live_network, robots_settings.data_dir), "+15550110001")
        assert await session.ended() == 1
        assert session.lines == ["+15550110001 belongs to the robots of this data directory."]


async def test_a_registration_elsewhere_ends_the_terminal(live_network: LiveNetwork, tmp_path: Path) -> None:
    first = settings_for(live_network, tmp_path / "first")
    async with at_the_terminal(first) as ada:
        await ada.until("Connected")
        async with at_the_terminal(settings_for(live_network, tmp_path / "second")) as thief:
            await thief.until("Connected")
            await ada.until("in use elsewhere")
            assert await ada.ended() == 1


async def test_the_terminal_works_with_piped_input_and_output(live_network: LiveNetwork, tmp_path: Path) -> None:
    folder = tmp_path / "piped"
    folder.mkdir()
    program = (
        "import asyncio, os, sys; "
        "from handset.settings import TerminalSettings; from handset.terminal.terminal import run_terminal; "
        ""
        "sys.exit(asyncio.run((lambda: run_terminal(sys.argv[1], TerminalSettings.read(os.environ), "
        "asyncio.Event()))()))"
    )
    async with business(live_network, tmp_path) as sender:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            program,
            f"+{ADA}",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={
                "PATH": os.environ["PATH"],
                "TIDINGS_DATA_DIR": str(folder),
                "TIDINGS_REGISTRATION_KEY": SECRETS.registration_key,
                "TIDINGS_NETWORK_HTTP_URL": live_network.http_url,
            },
        )
        async with asyncio.timeout(30):
            output, _ = await process.communicate(f"/to +{BUSINESS}\nfrom a pipe\n/quit\n".encode())
        assert process.returncode == 0, output
        assert b"is registered" in output
        await sender.until(lambda: [m.text for m in sender.messages] == ["from a pipe"])


def test_text_of_others_cannot_move_the_cursor() -> None:
    assert printable("a\x1b[2Jb\rc\u202ed") == "a\ufffd[2Jb\ufffdc\ufffdd"
    assert printable("ü 你好 \N{WAVING HAND SIGN}\tnext") == "ü 你好 \N{WAVING HAND SIGN}    next"


def test_a_fresh_directory_has_no_registration_key(tmp_path: Path) -> None:
    fresh = TerminalSettings.read({"TIDINGS_DATA_DIR": str(tmp_path / "new")})
    assert fresh.secrets.registration_key == ""
    told = TerminalSettings.read({"TIDINGS_DATA_DIR": str(tmp_path / "n2"), "TIDINGS_REGISTRATION_KEY": "k"})
    assert told.secrets.registration_key == "k"


@pytest.mark.parametrize("kind", [TerminalSettings, WebSettings, RobotsSettings])
def test_the_network_of_this_machine_is_found_at_its_changed_port(
    tmp_path: Path, kind: type[TerminalSettings | WebSettings | RobotsSettings]
) -> None:
    def url(**variables: str) -> str:
        return kind.read({"TIDINGS_DATA_DIR": str(tmp_path), **variables}).http_url

    assert url() == "http://127.0.0.1:9095"
    assert url(TIDINGS_NETWORK_HTTP_ADDRESS="127.0.0.1:9195") == "http://127.0.0.1:9195"
    assert url(TIDINGS_NETWORK_HTTP_ADDRESS="[::1]:9195") == "http://[::1]:9195"
    assert url(TIDINGS_NETWORK_HTTP_ADDRESS="0.0.0.0:9195") == "http://127.0.0.1:9095"
    given = {"TIDINGS_NETWORK_HTTP_ADDRESS": "127.0.0.1:9195", "TIDINGS_NETWORK_HTTP_URL": "https://network.test/"}
    assert url(**given) == "https://network.test"
