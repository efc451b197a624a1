"""Groups at a terminal, and robots in them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from pathlib import Path

import pytest

from handset.groups import code_of
from handset.robots.behaviours import Behaviour, number_of
from handset.robots.robots import find_invite_code
from handset.settings import RobotsSettings
from handset.terminal import group_commands
from tests.handset.conftest import LiveNetwork, robots_running
from tests.handset.people import ADA, BOB, Person, meet
from tests.handset.test_kill import die, shown_ids, start
from tests.handset.test_terminal import at_the_terminal, settings_for
from tidings.aio import crashpoints


async def test_two_terminals_meet_in_a_group_converse_and_leave(live_network: LiveNetwork, tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        terminals = []
        # Sequentially: two concurrent migrations in one process would conflict.
        for name, number in (("ada", ADA), ("bob", BOB)):
            session = at_the_terminal(settings_for(live_network, tmp_path / name), f"+{number}")
            terminals.append(await stack.enter_async_context(session))
            await terminals[-1].until("Connected")
        ada, bob = terminals
        ada.type("/group")
        await ada.until("You are in no group")
        ada.type("/group new Lunch with friends")
        await ada.until(rf"You are in Lunch with friends \({ADA}-\d+\)")
        ada.type("/group invite")
        code = (await ada.until("/group join [A-Za-z0-9_-]{22}$")).split()[-1]
        bob.type("/group join nonsense")
        await bob.until("^! there is no group with this invite code")
        bob.type(f"/group join https://join.example/{code}")
        await bob.until("You are in Lunch with friends")
        await ada.until(rf"\* \+{BOB} has joined Lunch with friends")
        ada.type("Soup?")
        await bob.until(rf"\[Lunch with friends\] \+{ADA}: Soup\?")
        await ada.until(rf"read by \+{BOB}")
        bob.type("/react 👍")
        await ada.until(rf"\[Lunch with friends\] \+{BOB}: \[reaction\] 👍")
        bob.type("/location 48.2 16.3 Stephansplatz")
        await ada.until(r"\[location\] Stephansplatz")
        bob.type("/group leave")
        await bob.until("You have left Lunch with friends")
        await ada.until(rf"\* \+{BOB} has left Lunch with friends")
        bob.type("Anybody?")
        await bob.until("Choose a recipient")
        ada.type("Alone now")
        ada.type("/group list")
        await ada.until(rf"1\. Lunch with friends \({ADA}-\d+\)")
    # The groups are still known after a restart.
    async with at_the_terminal(settings_for(live_network, tmp_path / "ada"), f"+{ADA}") as ada:
        await ada.until("Connected")
        ada.type("/group lunch WITH friends")
        await ada.until("What you type goes to Lunch with friends")


async def test_robots_join_a_group_by_link_and_send_read_receipts(
    live_network: LiveNetwork, robots_settings: RobotsSettings, tmp_path: Path
) -> None:
    ada = Person(ADA, live_network, tmp_path)
    robots = [number_of(Behaviour.READS, 0), number_of(Behaviour.READS, 1), number_of(Behaviour.DELIVERED_ONLY, 0)]
    async with robots_running(robots_settings), ada.phone() as phone:
        group = await meet(ada)
        link = f"https://join.example/{await phone.groups.get_code(ADA, group)}"
        for robot in robots:
            await phone.send(ADA, robot, f"Come to lunch: {link} !")
            await ada.until_notified("joined", robot)
        sent = [await ada.write(group, f"{n}") for n in range(3)]
        expected = {(robot, "delivered") for robot in robots} | {(robot, "read") for robot in robots[:2]}
        for message_id in sent:
            await ada.until(lambda message_id=message_id: set(ada.events(message_id)) >= expected)  # type: ignore[misc]
            assert set(ada.events(message_id)) == expected
        shown = [json.loads(line) for line in robots_settings.log_path.read_text().splitlines()]
        assert sorted((line["number"], line["id"]) for line in shown if line["id"] in sent) == sorted(
            (robot, message_id) for robot in robots for message_id in sent
        )


@pytest.mark.whole_system
async def test_robots_killed_in_an_active_group_show_each_message_once(
    live_network: LiveNetwork, robots_settings: RobotsSettings, tmp_path: Path
) -> None:
    ada = Person(ADA, live_network, tmp_path)
    readers = [number_of(Behaviour.READS, 0), number_of(Behaviour.READS, 1)]
    async with ada.phone() as phone:
        group = await meet(ada)
        link = f"https://join.example/{await phone.groups.get_code(ADA, group)}"
        process = start(robots_settings)
        async with asyncio.timeout(30):
            while len(await phone.fetch_bundles(phone.devices[ADA], readers)) < len(readers):
                pass
        invitations = []
        for reader in readers:
            invitations.append(await phone.send(ADA, reader, link))
            await ada.until_notified("joined", reader)
        sent = []
        for n in range(30):
            sent.append(await ada.write(group, f"{n}"))
            if n == 14:
                process.kill()
                await die(process)
                process = start(robots_settings, crash_at=f"{crashpoints.AFTER_ROW_BEFORE_NETWORK_ACK}:1")
        await die(process)
        assert process.returncode == -9
        process = start(robots_settings)
        try:
            expected = {(reader, what) for reader in readers for what in ("delivered", "read")}
            for message_id in sent:
                await ada.until(lambda message_id=message_id: set(ada.events(message_id)) == expected)  # type: ignore[misc]
        finally:
            process.kill()
            await die(process)
        shown = shown_ids(robots_settings.log_path)
        assert sorted(shown) == sorted([*invitations, *sent, *sent])


def test_an_invitation_is_a_link_ending_in_a_code() -> None:
    code = "Abcdefghij-_1234567890"
    assert find_invite_code(f"Join us: https://join.example/{code}") == code
    assert find_invite_code(f"http://a.example/b/c/{code} now") == code
    assert find_invite_code(f"https://join.example/{code}x") is None
    assert find_invite_code(f"https://join.example/?q={code}") is None
    assert find_invite_code(code) is None
    assert code_of(f" https://join.example/{code}/ ") == code_of(code) == code


def test_a_group_is_selected_by_position_id_or_subject() -> None:
    groups = {"15550000001-5": "Lunch", "15550000001-6": "Dinner", "15550000001-7": "dinner"}
    assert group_commands.pick("1", groups) == "15550000001-5"
    assert group_commands.pick("15550000001-7", groups) == "15550000001-7"
    assert group_commands.pick("LUNCH", groups) == "15550000001-5"
    for nothing in ("Dinner", "0", "4", "", "99999999999999999999"):
        assert group_commands.pick(nothing, groups) is None


async def test_errors_name_numbers_with_a_plus(live_network: LiveNetwork, tmp_path: Path) -> None:
    async with at_the_terminal(settings_for(live_network, tmp_path / "ada")) as ada:
        await ada.until("Connected")
        ada.type("/group new Lunch")
        invitation = r"/group join (\S+)"
        await ada.until("You are in Lunch")
        ada.type("/group invite")
        code = re.search(invitation, await ada.until(invitation))
        assert code is not None
        async with at_the_terminal(settings_for(live_network, tmp_path / "bob"), f"+{BOB}") as bob:
            await bob.until("Connected")
            bob.type(f"/group join {code[1]}")
            await bob.until("You are in Lunch")
            bob.type("/group invite")
            await bob.until(rf"^! \+{BOB} is not an admin of this group$")
