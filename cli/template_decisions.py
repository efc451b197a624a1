"""Actions of `tidings template` by which the operator reviews, pauses, rates and moves templates."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence

from cli import choices, guard
from tidings.storage import database_clock
from tidings.storage.business import template_events, templates
from tidings.storage.business.templates import NO_REASON, TemplateRow
from tidings.storage.database import Connection
from webapp.api.templates import decisions
from webapp.api.templates.decisions import ImpossibleDecision

CATEGORIES = ("MARKETING", "UTILITY", "AUTHENTICATION")
# Names of the actions, with the help of each.
_ACTIONS: Mapping[str, str] = {
    "approve": "approve a pending or rejected template; let a paused or disabled one be sent again",
    "reject": "reject a template",
    "pause": "pause an approved template: for 3 hours, the next time for 6, then disable it",
    "disable": "disable a template until it is approved again",
    "quality": "set the quality of a template",
    "category": "move a template to another category",
}
ACTIONS = frozenset(_ACTIONS)
MAX_SECONDS = 30 * 86_400  # of a pause, and until an announced move
_WORDS = ("reason", "explanation", "recommendation")  # options of some actions


def add_actions(add_parser: Callable[..., argparse.ArgumentParser]) -> Sequence[argparse.ArgumentParser]:
    """Add the actions and their options. Returns their parsers.

    add_parser: creates the parser of an action
    """
    made = {name: add_parser(name, help=text) for name, text in _ACTIONS.items()}
    for action in made.values():
        action.add_argument("name", metavar="NAME")
    _add_choice(made["quality"], "quality", decisions.QUALITIES)
    _add_choice(made["category"], "category", CATEGORIES)
    made["category"].add_argument(
        "--after",
        type=_seconds,
        metavar="SECONDS",
        help="announce the move, and make it after this time (WhatsApp: 86400)",
    )
    made["pause"].add_argument(
        "--seconds", type=_seconds, metavar="SECONDS", help="time after which the pause ends by itself"
    )
    for name, reasons in (
        ("reject", decisions.REASONS),
        ("pause", decisions.PAUSES),
        ("disable", decisions.REASONS),
    ):
        made[name].add_argument(
            "--reason", type=str.upper, choices=reasons, help=f"one of {', '.join(reasons)}", metavar="REASON"
        )
        made[name].add_argument("--explanation", metavar="TEXT", help="words about it for the webhook")
    made["reject"].add_argument(
        "--recommendation", metavar="TEXT", help="advice for the webhook, which needs --explanation"
    )
    for action in made.values():
        action.add_argument("--language", help="only in this language (default: in all)")
        action.add_argument("--namespace", help="only in this namespace (default: in all)")
    return list(made.values())


def _seconds(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 8 and 0 < int(text) <= MAX_SECONDS):
        raise argparse.ArgumentTypeError(f"is not a whole number from 1 to {MAX_SECONDS}")
    return int(text)


def _add_choice(action: argparse.ArgumentParser, name: str, choices: Sequence[str]) -> None:
    listed = f"one of {', '.join(choices)}"
    action.add_argument(name, metavar=name.upper(), type=str.upper, choices=choices, help=listed)


async def decide(connection: Connection, account: str, options: argparse.Namespace) -> Sequence[str]:
    """Change the templates that the options name, all or none. Returns a line about each changed one.

    The changes are to be reported to the callback of the number's app. Raises `CommandFailure` for unknown templates,
    for impossible changes, and if nothing is to be changed.
    """
    await templates.lock(connection, account)
    found = [one for one in await templates.list_templates(connection, account) if _is_meant(one, options)]
    if not found:
        where = "".join(f" in {value}" for value in (options.language, options.namespace) if value)
        raise guard.CommandFailure(f"there is no template {options.name}{where}")
    now = await database_clock.read(connection)
    try:
        decided = [_decided(one, options, now) for one in found]
    except ImpossibleDecision as error:
        raise guard.CommandFailure(str(error)) from None
    changed = [(one, made) for one, made in zip(found, decided, strict=True) if made != one]
    if not changed:
        raise guard.CommandFailure(f"{options.name} is {_value(found[0], options.action)} already")
    reason, info = _words(options)
    await templates.put_templates(connection, account, [made for _, made in changed], reason=reason, info=info)
    return [
        f"{one.name}  {one.language}  {_value(one, options.action)} -> {_value(made, options.action)}"
        for one, made in changed
    ]


def _is_meant(template: TemplateRow, options: argparse.Namespace) -> bool:
    return (
        template.name == options.name
        and options.language in (None, template.language)
        and options.namespace in (None, template.namespace)
    )


def _decided(template: TemplateRow, options: argparse.Namespace, now: int) -> TemplateRow:
    """Return a template after the action. Raises `ImpossibleDecision`."""
    match options.action:
        case "approve":
            return decisions.approve(template)
        case "reject":
            return decisions.reject(template, options.reason)
        case "pause":
            duration = None if options.seconds is None else options.seconds * 1000
            return decisions.pause(template, now, title=options.reason, duration_ms=duration)
        case "disable":
            return decisions.disable(template)
        case "quality":
            return decisions.rate(template, options.quality, now)
    at = None if options.after is None else now + options.after * 1000
    return decisions.recategorise(template, options.category, at)


def _value(template: TemplateRow, action: str) -> str:
    """Return the value that an action changes."""
    if action == "quality":
        return template.quality or templates.UNRATED
    if action == "category":
        at = template.category_at
        return template.category + ("" if at is None else f", {template.next_category} from {choices.utc(at)}")
    until = f" until {choices.utc(template.review_at)}" if action == "pause" and template.review_at else ""
    return template.status + until


def _words(options: argparse.Namespace) -> tuple[str, Mapping[str, str]]:
    """Return the reason and the further words for the webhook about a status. Raises `CommandFailure`."""
    words: dict[str, str | None] = {name: getattr(options, name, None) for name in _WORDS}
    reason, explanation, recommendation = (words[name] for name in _WORDS)
    if recommendation and not explanation:
        raise guard.CommandFailure("--recommendation needs --explanation: a webhook has both or none")
    is_pause = options.action == "pause"
    info = {
        template_events.TITLE: reason if is_pause else None,
        template_events.DESCRIPTION: explanation,
        template_events.RECOMMENDATION: recommendation,
    }
    return NO_REASON if is_pause or reason is None else reason, {name: text for name, text in info.items() if text}
