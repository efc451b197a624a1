"""The screen of a person at a terminal: messages as they come, receipts, and what the network does."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from handset import reading
from handset.application import Action, DeviceEvent, ReceivedMessage, SendReceipt
from handset.devices.device import DeviceObserver
from handset.shown_log import ShownLog
from handset.terminal import commands
from handset.terminal.console import Write
from handset.terminal.files import ConversationFiles
from tidings.runtime.lru import LRU
from tidings.wire.device import DELIVERED, READ

RECENT = 1000  # peers whose last choices are remembered, and messages that can be quoted
QUOTED = 60  # characters of a message that another one answers

_RECEIPTS = (SendReceipt(DELIVERED), SendReceipt(READ))


class Screen(DeviceObserver):
    """The application of one handset.

    peers: who has written to it or was written to. groups: those it is in, the subject of each by its id.
    to: who gets the next line, a number or a group; empty when that is to be chosen.
    """

    def __init__(
        self,
        shown_log: ShownLog,
        write: Write,
        files: ConversationFiles,
        *,
        peers: Sequence[str] = (),
        groups: Mapping[str, str] | None = None,
    ) -> None:
        self._log = shown_log
        self._write = write
        self._files = files
        self._was_connected: bool | None = None
        self.peers = set(peers)
        self.groups = dict(groups or {})
        self.to = peers[0] if len(self.peers) == 1 else ""
        self._threads: LRU[str, commands.Thread] = LRU(RECENT)
        # The beginning of each message, by its id.
        self._quotes: LRU[str, str] = LRU(RECENT)

    def actions(self, message: ReceivedMessage) -> Sequence[Action]:
        return _RECEIPTS

    def show(self, messages: Sequence[ReceivedMessage]) -> None:
        # On record first: killed in between, a message is never on the screen twice.
        self._log.append(messages)
        for message in messages:
            if not message.group and message.peer not in self.peers:
                self.peers.add(message.peer)
                self.to = message.peer if len(self.peers) == 1 else self.to
            when = datetime.datetime.fromtimestamp(message.time / 1000).strftime("%H:%M:%S")
            place = f"[{self._subject(message.group)}] " if message.group else ""
            self._write(f"{when} {place}+{printable(message.peer)}: {printable(self._words(message))}")

    def thread(self, peer: str) -> commands.Thread:
        """The last messages of a peer or group."""
        thread = self._threads.get(peer)
        if thread is None:
            thread = commands.Thread()
            self._threads.put(peer, thread)
        return thread

    def sent(self, message_id: str, words: str) -> None:
        """Something that was sent or shown may be answered."""
        self._quotes.put(message_id, words.split("\n", 1)[0][:QUOTED])

    def _words(self, message: ReceivedMessage) -> str:
        lines = self._lines(message)
        self.sent(message.id, lines[0])
        if message.raw and (answered := reading.answered(message.raw)):
            quote = self._quotes.get(answered)
            lines = [f"(answers {f'“{quote}”' if quote else answered})", *lines]
        return "\n  ".join(lines)

    def _lines(self, message: ReceivedMessage) -> list[str]:
        thread = self.thread(message.group or message.peer)
        thread.newest, thread.author = message.id, message.peer
        if message.type == "text":
            return [message.text]
        read = reading.read(message.type, message.raw)
        if read.choices:
            thread.choices, thread.offered = read.choices, message.id
            read.say("(/pick N answers)")
        for number in self._files.put(message):
            read.say(f"(/save {number} saves it)")
        return read.lines

    def list_shown(self, messages: Sequence[ReceivedMessage]) -> set[tuple[str, str]]:
        return self._log.list_shown(messages)

    def notify(self, event: DeviceEvent) -> None:
        peer = f"+{printable(event.peer)}" if event.peer != event.group else self._subject(event.group)
        if event.kind == "group_changed":
            self._group_changed(event)
            return
        lines = {
            "delivered": f"  delivered to {peer}",
            "read": f"  read by {peer}",
            "expired": f"! {peer} was away too long; a message was never delivered",
            "refused": f"! not sent to {peer}: {event.detail}",
            "identity": f"! {peer} has a new identity key: it has been registered anew",
            "undecryptable": f"! a message from {peer} could not be decrypted",
        }
        self._write(lines.get(event.kind, f"  {event.kind} {peer}"))

    def say(self, line: str) -> None:
        """Something about what was typed."""
        self._write(printable(line))

    def _subject(self, group: str) -> str:
        return printable(self.groups.get(group) or group)

    def _group_changed(self, event: DeviceEvent) -> None:
        by, who = f"+{printable(event.peer)}", ", ".join(f"+{printable(number)}" for number in event.refs)
        self.groups[event.group] = event.subject
        name = self._subject(event.group)
        lines = {
            "created": f"* {by} has made the group {name}",
            "joined": f"* {who} has joined {name}",
            "left": f"* {who} has left {name}",
            "removed": f"* {by} has removed {who} from {name}",
            "subject": f"* {by} calls the group {name} now",
            "admins": f"* the admins of {name} have changed: {who}",
        }
        if event.detail in ("left", "removed") and event.number in event.refs:
            del self.groups[event.group]
            self.to = "" if self.to == event.group else self.to
        self._write(lines.get(event.detail, f"* {name} has changed: {printable(event.detail)}"))

    def connected(self) -> None:
        if not self._was_connected:
            self._write("Connected.")
        self._was_connected = True

    def disconnected(self, reason: str) -> None:
        if self._was_connected is not False:
            self._write(f"The network is away ({reason}). Trying again until it is back.")
        self._was_connected = False


def printable(text: str) -> str:
    """Without what would move the cursor or change the terminal: a message is text, whatever its sender put into it."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
