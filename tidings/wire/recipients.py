"""Calls to the process with the robots, in test mode: one JSON line each way over a Unix socket."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

SOCKET = "recipients.sock"
MAX_LINE = 4 * 1024 * 1024  # bytes of a call or a response
MAX_SHOWN = 500  # messages in one response

UNKNOWN, OFFLINE, REFUSED, AWAY = "unknown", "offline", "refused", "away"
"""Reasons why a call fails: no such recipient, one that never logs in, a content that cannot be sent, and a network or
store that cannot be reached now."""


class SendAsRecipient(msgspec.Struct, tag_field="t", tag="send", omit_defaults=True):
    """Send a message as a recipient. The response has its id once it is committed to the recipient's outbox."""

    number: str
    to: str  # number of the business
    content: dict[str, Any]  # content that the recipient encrypts: `{"type":"text","text":{"body":…}}`
    name: str = ""  # name in the profile; empty for none
    file: bytes = b""  # file of a media message; empty for none
    mime_type: str = ""  # MIME type of the file; empty to detect it


class ListShown(msgspec.Struct, tag_field="t", tag="shown", omit_defaults=True):
    """List the messages that a recipient's handset shows, oldest first."""

    number: str
    after: int = 0  # position after which the list starts
    limit: int = MAX_SHOWN


class EnrolRecipient(msgspec.Struct, tag_field="t", tag="enrol"):
    """Register a test number and log it in, unless it is logged in."""

    number: str


class DropShown(msgspec.Struct, tag_field="t", tag="forget"):
    """Delete the messages that all recipients have received."""


RecipientCall = SendAsRecipient | ListShown | EnrolRecipient | DropShown


class ShownMessage(msgspec.Struct, omit_defaults=True):
    """Message on a handset."""

    position: int  # position among the messages of all recipients, by arrival
    id: str
    sender: str
    at: int  # time at which the network accepted it, Unix milliseconds
    type: str
    lines: list[str]  # what a person reads
    choices: list[str] = []  # labels of the choices that it offers
    content: dict[str, Any] | None = None  # the decrypted content; `None` for a plain text
    group: str = ""  # empty for none


class RecipientDone(msgspec.Struct, tag_field="t", tag="done", omit_defaults=True):
    """Success of a call."""

    id: str = ""  # id of the message, in the response to `SendAsRecipient`
    shown: list[ShownMessage] = []  # in the response to `ListShown`
    typing: list[str] = []  # numbers that the handset shows as typing, in the response to `ListShown`


class RecipientFailure(msgspec.Struct, tag_field="t", tag="failed"):
    """Failure of a call."""

    reason: str  # `UNKNOWN`, `OFFLINE`, `REFUSED` or `AWAY`
    details: str


RecipientResponse = RecipientDone | RecipientFailure

encode = msgspec.json.Encoder().encode
decode_call = msgspec.json.Decoder(RecipientCall).decode
decode_answer = msgspec.json.Decoder(RecipientResponse).decode


def address_of(directory: Path, descriptor: int) -> str:
    """Return the path of the socket below an open directory.

    A Unix address has at most 107 bytes, which paths of data directories may exceed. Linux also reaches the directory
    by its descriptor.
    """
    path = str(directory / SOCKET)
    return path if len(os.fsencode(path)) < 100 else f"/proc/self/fd/{descriptor}/{SOCKET}"
