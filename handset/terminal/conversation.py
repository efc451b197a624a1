"""Conversation in a terminal: sends typed lines, and executes commands."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses

from handset import composing
from handset.composing import Content
from handset.fleet import Fleet
from handset.terminal import commands, group_commands
from handset.terminal.console import TerminalConsole
from handset.terminal.files import ConversationFiles
from handset.terminal.group_commands import GroupCommands
from handset.terminal.screen import Screen
from tidings.client.errors import ClientError
from tidings.wire import addresses

CLOSE_GRACE_SECONDS = 5.0  # close grace period, in which the last messages reach the network

HELP = """Type a line to send it.  /to NUMBER writes to another number,  /help  shows all commands,  /quit  leaves."""
MORE_HELP = """//TEXT                      sends /TEXT, a text that starts with a slash
/pick N                     answers with a row or a button of the last message that has some
/location LAT LON [NAME]    sends a place
/contact NAME NUMBER        sends a contact
/react EMOJI                reacts to the last message; without an emoji takes that back
/order CATALOGUE PRODUCT …  orders products
/send FILE [CAPTION]        sends a file; a name with spaces goes between quotes
/voice FILE                 sends an Ogg file with Opus as a voice message
/save [N]                   saves the last file that came, or file N
/reply TEXT                 answers the last message
/forward TEXT               sends it as forwarded from somebody else
/about CATALOGUE PRODUCT TEXT  asks about a product
/ad URL TEXT                writes as one who came by an advertisement
/form JSON                  sends a form that was filled in
/number NUMBER              tells the business another number
/unknown                    sends a type that the business does not know
/delete                     withdraws the last message that was sent"""


@dataclasses.dataclass(eq=False, repr=False)
class TerminalConversation:
    """Conversation of one number with its peers and groups."""

    number: str
    fleet: Fleet
    console: TerminalConsole
    _: dataclasses.KW_ONLY
    screen: Screen
    files: ConversationFiles
    name: str  # name in the sender's profile; empty for none

    def __post_init__(self) -> None:
        self._group_commands = GroupCommands(self.fleet.groups, self.number, self.screen)

    async def run(self) -> None:
        """Process typed lines until `/quit` or the end of input."""
        while True:
            line = await self.console.keyboard.read("> ")
            if line is None or line.split()[:1] == ["/quit"]:
                break
            if _is_text(line):
                await self._execute(line.strip())
            else:
                self.console.write("! not sent: the line contains bytes that are no text.")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_GRACE_SECONDS):
                await self.fleet.wait_until_sent()

    async def _execute(self, line: str) -> None:
        command, _, argument = line.partition(" ")
        if not line:
            return
        if command == "/help":
            self.console.write(f"{HELP}\n{MORE_HELP}\n{group_commands.HELP}")
        elif command == "/to":
            self._choose(argument.replace(" ", "").lstrip("+"))
        elif command == "/group":
            await self._group_commands.execute(argument.strip())
        elif command == "/save":
            await self._save(argument.strip())
        elif not self.screen.to:
            known = ", ".join(f"+{peer}" for peer in sorted(self.screen.peers))
            self.console.write(f"Choose a recipient with /to NUMBER{f' ({known})' if known else ''}.")
        else:
            await self._send(line)

    def _choose(self, peer: str) -> None:
        if addresses.is_number(peer):
            self.screen.to = peer
            self.console.write(f"What you type goes to +{peer}.")
        else:
            self.console.write("Use /to NUMBER, like /to +15550000000.")

    async def _save(self, argument: str) -> None:
        try:
            await self.files.save(argument)
        except commands.CommandUsageError as error:
            self.screen.print_lines(str(error))
        except ClientError as error:
            self.screen.print_lines(f"! not saved: {error}")

    async def _send(self, line: str) -> None:
        """Send a typed line, or the content that its command composes. Shows why a line was not sent."""
        peer = self.screen.to
        thread = self.screen.thread(peer)
        # The first slash of a text that starts with two only shows that it is no command.
        text = line.removeprefix("/") if line.startswith("//") else line
        if len(text) > composing.MAX_TEXT:
            self.console.write(f"! not sent: at most {composing.MAX_TEXT:,} characters go into one message.")
            return
        try:
            content = await self._compose(line, thread.author or peer, thread) if text == line else composing.text(text)
            if peer in self.screen.groups:
                sent = await self.fleet.send_to_group(self.number, peer, content, self.name)
            else:
                sent = await self.fleet.send_content(self.number, peer, content, self.name)
                self.screen.peers.add(peer)
            if content["type"] != "reaction":
                # A withdrawal cannot be withdrawn.
                thread.sent = "" if content["type"] == "deleted" else sent
            self.screen.keep_quote(sent, text)
        except KeyError:
            self.console.write(f"There is no {line.split()[0]}; a text that starts with / is typed with //. {HELP}")
        except commands.CommandUsageError as error:
            self.screen.print_lines(str(error))
        except commands.NothingToSend as done:
            self.screen.print_lines(f"  {done}")
        except ClientError as error:
            self.screen.print_lines(f"! not sent: {error}")

    async def _compose(self, line: str, author: str, thread: commands.Thread) -> Content:
        """Return the content of a line: a text, or the content of a command.

        Raises `CommandUsageError`, `NothingToSend`, `ClientError`, and `KeyError` for an unknown command.

        author: number of the sender of the message that a command refers to
        """
        command, _, argument = line.partition(" ")
        if command in ("/send", "/voice"):
            return await self.files.compose(command, argument)
        return commands.compose(line, author, thread) if line.startswith("/") else composing.text(line)


def _is_text(line: str) -> bool:
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True
