"""Commands that compose contents: from a typed line to the content to send."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence

from handset import composing
from handset.composing import Content
from handset.reading import ReplyChoice
from tidings.wire import addresses


class Misused(ValueError):
    """The command was used wrongly. The text explains its use."""


class NothingToSend(Exception):
    """The command sends nothing. The text names its effect on this device."""


@dataclasses.dataclass(slots=True)
class Thread:
    """Last messages of one peer or group."""

    choices: Sequence[ReplyChoice] = ()  # of the message `offered`
    offered: str = ""  # id of the last message with choices; empty for none
    newest: str = ""  # id of the last shown message; empty for none
    author: str = ""  # number of the sender of `newest`
    sent: str = ""  # id of the last message that this number sent; empty for none


def compose(line: str, peer: str, thread: Thread) -> Content:
    """Return the content of a command. Raises `Misused`, `NothingToSend`, and `KeyError` for an unknown command."""
    command, _, argument = line.partition(" ")
    return _COMMANDS[command](argument.strip(), peer, thread)


def _pick(argument: str, peer: str, thread: Thread) -> Content:
    if not thread.choices:
        raise Misused("No message has a choice to pick.")
    number = int(argument) if argument.isascii() and argument.isdigit() and len(argument) < 4 else 0
    if not 1 <= number <= len(thread.choices):
        raise Misused(f"Use /pick N, from 1 to {len(thread.choices)}.")
    choice = thread.choices[number - 1]
    if choice.answer is None:
        raise NothingToSend(choice.effect)
    return composing.answering(dict(choice.answer), thread.offered, peer)


def _location(argument: str, peer: str, thread: Thread) -> Content:
    words = argument.replace(",", " ").split(None, 2)
    try:
        latitude, longitude = float(words[0]), float(words[1])
    except (IndexError, ValueError):
        latitude = longitude = 999.0
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
        raise Misused("Use /location LATITUDE LONGITUDE [NAME], like /location 48.2082 16.3738 Stephansplatz.")
    return composing.location(latitude, longitude, words[2].strip() if len(words) > 2 else "")


def _react(argument: str, peer: str, thread: Thread) -> Content:
    if not thread.newest:
        raise Misused("There is no message to react to.")
    if len(argument) > 16:
        raise Misused("Use /react EMOJI; without one it removes a reaction.")
    return composing.reaction(thread.newest, argument)


def _contact(argument: str, peer: str, thread: Thread) -> Content:
    name, _, phone = argument.rpartition(" ")
    digits = phone.removeprefix("+")
    if not name.strip() or not addresses.is_wa_id(digits):
        raise Misused("Use /contact NAME NUMBER, like /contact Ada Lovelace +15550100001.")
    return composing.contact(name.strip(), phone)


def _order(argument: str, peer: str, thread: Thread) -> Content:
    words = argument.split()
    quantities = dict.fromkeys(words[1:], 1)
    if not quantities:
        raise Misused("Use /order CATALOGUE PRODUCT …")
    for product in quantities:
        quantities[product] = words[1:].count(product)
    return composing.order(words[0], quantities)


def _reply(argument: str, peer: str, thread: Thread) -> Content:
    if not thread.newest or not argument:
        raise Misused("Use /reply TEXT, once there is a message to answer.")
    return composing.answering(composing.text(argument), thread.newest, peer)


def _forward(argument: str, peer: str, thread: Thread) -> Content:
    if not argument:
        raise Misused("Use /forward TEXT.")
    return composing.forwarded(composing.text(argument))


def _about(argument: str, peer: str, thread: Thread) -> Content:
    words = argument.split(None, 2)
    if len(words) < 3:
        raise Misused("Use /about CATALOGUE PRODUCT TEXT.")
    return composing.about_product(composing.text(words[2]), thread.newest, peer, words[0], words[1])


def _ad(argument: str, peer: str, thread: Thread) -> Content:
    url, _, text = argument.partition(" ")
    if not url.startswith(("https://", "http://")) or not text.strip():
        raise Misused("Use /ad URL TEXT, like /ad https://example.com/ad Tell me more.")
    return composing.referred(composing.text(text.strip()), url)


def _form(argument: str, peer: str, thread: Thread) -> Content:
    try:
        if not isinstance(json.loads(argument), dict):
            raise ValueError
    except (ValueError, RecursionError):
        raise Misused('Use /form JSON, like /form {"name": "Ada"}.') from None
    content = composing.form_reply("flow", "Sent", argument)
    return composing.answering(content, thread.newest, peer) if thread.newest else content


def _number(argument: str, peer: str, thread: Thread) -> Content:
    digits = argument.replace(" ", "").removeprefix("+")
    if not addresses.is_number(digits):
        raise Misused("Use /number NUMBER, like /number +15550100002.")
    return composing.changed_number(digits, f"My number is now +{digits}")


def _unknown(argument: str, peer: str, thread: Thread) -> Content:
    return composing.unknown()


def _delete(argument: str, peer: str, thread: Thread) -> Content:
    if not thread.sent:
        raise Misused("You have sent no message that can be withdrawn.")
    return composing.deleted(thread.sent)


_COMMANDS: Mapping[str, Callable[[str, str, Thread], Content]] = {
    "/pick": _pick,
    "/location": _location,
    "/react": _react,
    "/contact": _contact,
    "/order": _order,
    "/reply": _reply,
    "/forward": _forward,
    "/about": _about,
    "/ad": _ad,
    "/form": _form,
    "/number": _number,
    "/unknown": _unknown,
    "/delete": _delete,
}
