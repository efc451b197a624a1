"""Commands that compose contents: from a typed line to the content to send."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

from handset import composing, user_input
from handset.composing import Content
from handset.reading import ReplyChoice
from handset.user_input import InvalidInput


class CommandUsageError(ValueError):
    """The command was used wrongly. The text explains its use."""


class NothingToSend(Exception):
    """The command sends nothing. The text names its effect on this device."""


@dataclasses.dataclass(slots=True)
class Thread:
    """Last messages of one peer or group."""

    choices: Sequence[ReplyChoice] = ()  # choices of the message `offered`
    offered: str = ""  # id of the last message with choices; empty for none
    newest: str = ""  # id of the last shown message; empty for none
    author: str = ""  # number of the sender of `newest`
    sent: str = ""  # id of the last message that this number sent; empty for none


def compose(line: str, peer: str, thread: Thread) -> Content:
    """Return the content of a command.

    Raises `CommandUsageError`, `NothingToSend`, and `KeyError` for an unknown command.
    """
    command, _, argument = line.partition(" ")
    return _COMMANDS[command](argument.strip(), peer, thread)


@contextlib.contextmanager
def _usage(text: str) -> Iterator[None]:
    """Report an invalid answer by the use of its command."""
    try:
        yield
    except InvalidInput:
        raise CommandUsageError(text) from None


def _pick(argument: str, peer: str, thread: Thread) -> Content:
    if not thread.choices:
        raise CommandUsageError("No message has a choice to pick.")
    number = int(argument) if argument.isascii() and argument.isdigit() and len(argument) < 4 else 0
    if not 1 <= number <= len(thread.choices):
        raise CommandUsageError(f"Use /pick N, from 1 to {len(thread.choices)}.")
    choice = thread.choices[number - 1]
    if choice.answer is None:
        raise NothingToSend(choice.effect)
    return composing.answering(dict(choice.answer), thread.offered, peer)


def _location(argument: str, peer: str, thread: Thread) -> Content:
    words = [*argument.replace(",", " ").split(None, 2), "", "", ""]
    with _usage("Use /location LATITUDE LONGITUDE [NAME], like /location 48.2082 16.3738 Stephansplatz."):
        return user_input.location(words[0], words[1], words[2].strip())


def _react(argument: str, peer: str, thread: Thread) -> Content:
    if not thread.newest:
        raise CommandUsageError("There is no message to react to.")
    with _usage("Use /react EMOJI; without one it removes a reaction."):
        return user_input.reaction(thread.newest, argument)


def _contact(argument: str, peer: str, thread: Thread) -> Content:
    name, _, phone = argument.rpartition(" ")
    with _usage("Use /contact NAME NUMBER, like /contact Ada Lovelace +15550100001."):
        return user_input.contact(name.strip(), phone)


def _order(argument: str, peer: str, thread: Thread) -> Content:
    catalog, *products = argument.split() or [""]
    with _usage("Use /order CATALOGUE PRODUCT …"):
        return user_input.order(catalog, collections.Counter(products))


def _reply(argument: str, peer: str, thread: Thread) -> Content:
    if not thread.newest or not argument:
        raise CommandUsageError("Use /reply TEXT, once there is a message to answer.")
    return composing.answering(composing.text(argument), thread.newest, peer)


def _forward(argument: str, peer: str, thread: Thread) -> Content:
    if not argument:
        raise CommandUsageError("Use /forward TEXT.")
    return composing.forwarded(composing.text(argument))


def _about(argument: str, peer: str, thread: Thread) -> Content:
    words = [*argument.split(None, 2), "", "", ""]
    with _usage("Use /about CATALOGUE PRODUCT TEXT."):
        return user_input.about_product(words[2], thread.newest, peer, catalog=words[0], product=words[1])


def _ad(argument: str, peer: str, thread: Thread) -> Content:
    url, _, text = argument.partition(" ")
    with _usage("Use /ad URL TEXT, like /ad https://example.com/ad Tell me more."):
        return user_input.from_advertisement(url, text.strip())


def _form(argument: str, peer: str, thread: Thread) -> Content:
    with _usage('Use /form JSON, like /form {"name": "Ada"}.'):
        content = user_input.form(argument)
    return composing.answering(content, thread.newest, peer) if thread.newest else content


def _number(argument: str, peer: str, thread: Thread) -> Content:
    with _usage("Use /number NUMBER, like /number +15550100002."):
        return user_input.new_number(argument)


def _unknown(argument: str, peer: str, thread: Thread) -> Content:
    return composing.unknown()


def _delete(argument: str, peer: str, thread: Thread) -> Content:
    if not thread.sent:
        raise CommandUsageError("You have sent no message that can be withdrawn.")
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
