"""Commands about groups: `/group` and its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from handset.groups import FleetGroups
from handset.terminal.screen import Screen
from tidings.client.errors import ClientError
from tidings.wire.groups import DescribedGroup

HELP = """/group                      lists the groups one is in;  /group N  writes to one of them
/group join CODE            joins by a code or a link
/group new SUBJECT          makes a group;  /group invite  shows its code
/group leave                leaves the group that one writes to"""


class GroupCommands:
    """Executes group commands of one number."""

    def __init__(self, groups: FleetGroups, number: str, screen: Screen) -> None:
        self._groups = groups
        self._number = number
        self._screen = screen

    async def execute(self, argument: str) -> None:
        """Execute a command, given as the text after `/group`, and show its result."""
        word, _, rest = argument.partition(" ")
        try:
            if word == "" or word == "list":
                await self._list()
            elif word == "join" and rest.strip():
                self._choose(await self._groups.join(self._number, rest.strip()))
            elif word == "new" and rest.strip():
                self._choose(await self._groups.create(self._number, rest.strip()))
            elif word == "invite" and self._screen.to in self._screen.groups:
                code = await self._groups.get_code(self._number, self._screen.to)
                self._screen.print_lines(f"Others join with /group join {code}")
            elif word == "leave" and self._screen.to in self._screen.groups:
                await self._leave(self._screen.to)
            elif found := pick(argument.strip(), self._screen.groups):
                self._screen.to = found
                self._screen.print_lines(f"What you type goes to {self._screen.groups[found]}.")
            else:
                self._screen.print_lines("There is no such group. Use", *HELP.splitlines())
        except ClientError as error:
            self._screen.print_lines(f"! {error}")

    async def _list(self) -> None:
        found: Sequence[DescribedGroup] = await self._groups.list_mine(self._number)
        self._screen.groups.clear()
        self._screen.groups.update((group.id, group.subject) for group in found)
        if not found:
            self._screen.print_lines("You are in no group. Use /group join CODE or /group new SUBJECT.")
        for index, (id_, subject) in enumerate(self._screen.groups.items(), 1):
            self._screen.print_lines(f"  {index}. {subject} ({id_})")

    async def _leave(self, group: str) -> None:
        subject = self._screen.groups[group]
        await self._groups.leave(self._number, group)
        self._screen.groups.pop(group, None)
        self._screen.to = ""
        self._screen.print_lines(f"You have left {subject}.")

    def _choose(self, group: DescribedGroup) -> None:
        self._screen.groups[group.id] = group.subject
        self._screen.to = group.id
        self._screen.print_lines(f"You are in {group.subject} ({group.id}). What you type goes there.")


def pick(argument: str, groups: Mapping[str, str]) -> str | None:
    """Return the group that a text names: by its position in the list, its id or its subject.

    Returns `None` when no group or several groups match.
    """
    ids = list(groups)
    if argument.isascii() and argument.isdigit() and 1 <= int(argument[:6]) <= len(ids):
        return ids[int(argument[:6]) - 1]
    if argument in groups:
        return argument
    named = [id_ for id_, subject in groups.items() if subject.casefold() == argument.casefold()]
    return named[0] if len(named) == 1 else None
