"""Screen of a terminal: messages, receipts, and the state of the connection."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Sequence

from handset import reading
from handset.application import TYPING, Action, DeviceEvent, ReceivedMessage, SendReceipt
from handset.devices.device import DeviceObserver
from handset.shown_log import ShownLog
from handset.terminal import commands, keyboard, lines
from handset.terminal.console import Write
from handset.terminal.files import ConversationFiles
from handset.typing_peers import TypingPeers
from tidings.aio.clock import Clock, SystemClock
from tidings.aio.lru import LRU
from tidings.pages.printable import one_line, printable
from tidings.wire.device import DELIVERED, READ

RECENT = 1000  # peers whose last choices are kept, and messages that can be quoted
QUOTED = 60  # characters that are quoted of a message that another one replies to

_RECEIPTS = (SendReceipt(DELIVERED), SendReceipt(READ))


@dataclasses.dataclass(eq=False, repr=False)
class Screen(DeviceObserver):
    """Application of one handset."""

    shown_log: ShownLog
    write: Write
    files: ConversationFiles
    _: dataclasses.KW_ONLY
    peers: set[str] = dataclasses.field(default_factory=set)  # numbers that this number has exchanged messages with
    groups: dict[str, str] = dataclasses.field(default_factory=dict)  # subjects of its groups, by id
    columns: Callable[[], int] = keyboard.columns  # returns the width of the terminal; 0 for unlimited
    clock: Clock = dataclasses.field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        self._was_connected: bool | None = None
        self._typing = TypingPeers(self.clock)
        # number or group that receives the next line; empty while none is chosen
        self.to = min(self.peers) if len(self.peers) == 1 else ""
        self._threads: LRU[str, commands.Thread] = LRU(RECENT)
        # Start of each message, by its id.
        self._quotes: LRU[str, str] = LRU(RECENT)

    def actions(self, message: ReceivedMessage) -> Sequence[Action]:
        return _RECEIPTS

    def show(self, messages: Sequence[ReceivedMessage]) -> None:
        # Recorded first, so that after a crash no message is shown twice.
        self.shown_log.append(messages)
        for message in messages:
            if not message.group:
                self._typing.end(message.number, message.peer)
            if not message.group and message.peer not in self.peers:
                self.peers.add(message.peer)
                self.to = message.peer if len(self.peers) == 1 else self.to
            when = datetime.datetime.fromtimestamp(message.time / 1000).strftime("%H:%M:%S")
            place = f"[{self._subject(message.group)}] " if message.group else ""
            first, *more = self._quoted_lines(message)
            self._show(f"{when} {place}+{one_line(message.peer)}: {first}", *more)

    def _show(self, *rows: str) -> None:
        """Print the lines of one author."""
        self.write(lines.folded(rows, self.columns()))

    def thread(self, peer: str) -> commands.Thread:
        """Return the last messages of a peer or group."""
        thread = self._threads.get(peer)
        if thread is None:
            thread = commands.Thread()
            self._threads.put(peer, thread)
        return thread

    def keep_quote(self, message_id: str, words: str) -> None:
        """Remember the start of a message that was sent or shown, to quote it above replies."""
        first = next(iter(words.splitlines()), "")
        self._quotes.put(message_id, printable(first)[:QUOTED])

    def _quoted_lines(self, message: ReceivedMessage) -> list[str]:
        found = self._lines(message)
        self.keep_quote(message.id, found[0])
        if message.raw and (answered := reading.answered(message.raw)):
            quote = self._quotes.get(answered)
            return [f"(answers {f'“{quote}”' if quote else one_line(answered)})", *found]
        return found

    def _lines(self, message: ReceivedMessage) -> list[str]:
        thread = self.thread(message.group or message.peer)
        thread.newest, thread.author = message.id, message.peer
        if message.type == "text":
            return [message.text]
        read = reading.read(message.type, message.raw)
        if read.choices:
            thread.choices, thread.offered = read.choices, message.id
            read.write("(/pick N answers)")
        for number in self.files.put(message):
            read.write(f"(/save {number} saves it)")
        return read.lines

    def list_shown(self, messages: Sequence[ReceivedMessage]) -> set[tuple[str, str]]:
        return self.shown_log.list_shown(messages)

    def notify(self, event: DeviceEvent) -> None:
        peer = f"+{one_line(event.peer)}" if event.peer != event.group else self._subject(event.group)
        if event.kind == "group_changed":
            self._group_changed(event)
            return
        if event.kind == TYPING:
            if self._typing.begin(event.number, event.peer):
                self._show(f"  {peer} is typing")
            return
        texts = {
            "delivered": f"  delivered to {peer}",
            "read": f"  read by {peer}",
            "expired": f"! {peer} was offline too long; a message was never delivered",
            "refused": f"! not sent to {peer}: {one_line(event.detail)}",
            "identity": f"! {peer} has a new identity key: it has registered again",
            "undecryptable": f"! a message from {peer} could not be decrypted",
        }
        self._show(texts.get(event.kind, f"  {event.kind} {peer}"))

    def print_lines(self, *rows: str) -> None:
        """Print lines about the input."""
        self.write("\n".join(lines.folded([one_line(row)], self.columns()) for row in rows))

    def _subject(self, group: str) -> str:
        return one_line(self.groups.get(group) or group)

    def _group_changed(self, event: DeviceEvent) -> None:
        by, who = f"+{one_line(event.peer)}", ", ".join(f"+{one_line(number)}" for number in event.refs)
        self.groups[event.group] = event.subject
        name = self._subject(event.group)
        texts = {
            "created": f"* {by} has created the group {name}",
            "joined": f"* {who} has joined {name}",
            "left": f"* {who} has left {name}",
            "removed": f"* {by} has removed {who} from {name}",
            "subject": f"* {by} has renamed the group to {name}",
            "admins": f"* the admins of {name} have changed: {who}",
        }
        if event.detail in ("left", "removed") and event.number in event.refs:
            del self.groups[event.group]
            self.to = "" if self.to == event.group else self.to
        self._show(texts.get(event.detail, f"* {name} has changed: {one_line(event.detail)}"))

    def connected(self) -> None:
        if not self._was_connected:
            self.write("Connected.")
        self._was_connected = True

    def disconnected(self, reason: str) -> None:
        if self._was_connected is not False:
            self._show(f"The network is unreachable ({one_line(reason)}). Trying again.")
        self._was_connected = False
