"""Settings of an old installation: application settings, media providers and profile."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pydantic

from cli.moving.findings import OldPart, kept, refused, shown, to_set, unused
from tidings.egress import addresses, urls
from tidings.egress.addresses import literal
from tidings.storage.business.application_settings import DEFAULTS
from tidings.wire.addresses import is_number
from webapp.api.application_settings.schemas import Changes
from webapp.api.media_providers.schemas import MediaProvider
from webapp.api.profile.schemas import About, BusinessProfile
from webapp.http import bodies
from webapp.http.errors import InvalidRequest

# Settings that are stored without an effect, with what replaces them (docs/api.md).
WITHOUT_EFFECT: Mapping[str, str] = {
    "pass_through": "messages are deleted after their retention",
    "heartbeat_interval": "see TIDINGS_HEARTBEAT_SECONDS",
    "unhealthy_interval": "see TIDINGS_LEASE_SECONDS",
    "axolotl_context_striping_disabled": "it has no counterpart",
    "skip_referral_media_download": "files of referrals are never fetched",
    "on_call_pager": "see docs/operations.md for alerts",
    "verbose_logging": "see TIDINGS_LOG_LEVEL",
    "log_level": "see TIDINGS_LOG_LEVEL",
}
_PATH = "/v1/settings/application"
_URL = "webhooks.url"


def describe(settings: Mapping[str, Any]) -> Iterator[OldPart]:
    """Yield the parts of `settings` in a response of the old API."""
    application, business, profile = (settings.get(name) for name in ("application", "business", "profile"))
    if isinstance(application, Mapping):
        yield from _application(application)
    if isinstance(business, Mapping) and "profile" in business:
        yield _checked(BusinessProfile, business["profile"], "business profile", "POST /v1/settings/business/profile")
    if isinstance(profile, Mapping) and "about" in profile:
        yield _checked(About, profile["about"], "about text", "PATCH /v1/settings/profile/about")
    if isinstance(profile, Mapping) and "photo" in profile:
        yield to_set("photo", "POST /v1/settings/profile/photo with the file")
    if "data" in settings:
        yield unused(
            "backup", "it has WhatsApp's keys: POST /{phone-number-id}/register of the vendor's Cloud API takes it"
        )


def _application(application: Mapping[str, Any]) -> Iterator[OldPart]:
    for name, value in _flat(application):
        if name == "media.providers":
            yield from _providers(value)
        else:
            yield _setting(name, value)


def _setting(name: str, value: object) -> OldPart:
    if name == "wa_id":
        return _number(value)
    if name in WITHOUT_EFFECT:
        return unused(name, f"accepted without an effect; {WITHOUT_EFFECT[name]}")
    nested = _nested(name, value)
    try:
        # An old key is stored under its newer name.
        present = next(_flat(bodies.check(Changes, nested).document()), None)
    except InvalidRequest as error:
        return refused(name, error.problems[0].details.partition(": ")[2])
    if present is None:
        return unused(name, "it is not set" if value is None else "it is ignored here")
    if name == _URL:
        return _webhook(str(value))
    if present in dict(_flat(_defaults())).items():
        return kept(name, f"{_json(present[1])} is the default")
    return to_set(name, f"PATCH {_PATH} {_json(nested)}")


def _webhook(url: str) -> OldPart:
    if not url:
        return kept(_URL, "none is set")
    try:
        target = urls.parse(url)
    except ValueError as error:
        return refused(_URL, str(error))
    remark = f'PATCH {_PATH} {{"webhooks": {{"url": "{target.shown}/…"}}}}'
    spelt = literal(target.origin[0])
    reason = addresses.refusal(spelt, ()) if spelt is not None else ""
    if reason == addresses.NEVER:
        return refused(_URL, f"{target.shown} is {reason}")
    if reason:
        remark += f"; it is {reason}: TIDINGS_OUTGOING_ALLOW_WEBHOOKS must list it"
    return to_set(_URL, remark)


def _number(value: object) -> OldPart:
    number = str(value)
    if not is_number(number):
        return refused("wa_id", f"{shown(number)!r} is not a number of 7 to 15 digits")
    return to_set("wa_id", f"TIDINGS_BUSINESS_NUMBER={number}; through the Cloud API: `tidings number upstream`")


def _providers(found: object) -> Iterator[OldPart]:
    if not isinstance(found, list):
        yield refused("media.providers", "should be a list")
        return
    for index, provider in enumerate(found):
        named = provider.get("name") if isinstance(provider, Mapping) else None
        name = f"media provider {named if isinstance(named, str) else index}"
        yield _checked(MediaProvider, provider, name, f"POST {_PATH}/media/providers, in a list")


def _checked(model: type[pydantic.BaseModel], value: object, name: str, command: str) -> OldPart:
    """Return whether a body of our API takes a value of the old one."""
    try:
        bodies.check(model, value)
    except InvalidRequest as error:
        return refused(name, "; ".join(problem.details for problem in error.problems))
    return to_set(name, command)


def _defaults() -> dict[str, Any]:
    # Through JSON, so that tuples become lists.
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(dataclasses.asdict(DEFAULTS)))
    return found


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings that are no objects, by their path."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _nested(name: str, value: object) -> dict[str, Any]:
    first, _, rest = name.partition(".")
    return {first: _nested(rest, value) if rest else value}


def _json(value: object) -> str:
    return shown(msgspec.json.encode(value).decode())
