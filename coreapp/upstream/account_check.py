"""Check of a number's upstream at the Cloud API: token, permissions, ids, state of the number, webhooks and clock."""

from __future__ import annotations

import dataclasses
import email.utils
import hashlib
import hmac
import urllib.parse
from collections.abc import Sequence
from typing import Any

import msgspec

from coreapp.graph_api.client import CloudResponse, GraphClient, NotPosted, ResponseMissing
from coreapp.upstream import outcomes
from coreapp.upstream_access import UpstreamAccess
from tidings.wire.decoding import UNREADABLE

CONNECTED = "CONNECTED"
CLOCK_SECONDS = 60.0  # difference of the clocks that is reported

_NEW_CREDENTIALS = "replace the token: TIDINGS_CLOUD_TOKEN_FILE=… tidings number upstream NUMBER cloud"
_PERMISSIONS = "give the token's user the permissions whatsapp_business_messaging and whatsapp_business_management"
_REMEDIES = {
    0: _NEW_CREDENTIALS,
    104: _NEW_CREDENTIALS,
    190: _NEW_CREDENTIALS,
    3: _PERMISSIONS,
    10: _PERMISSIONS,
    100: "compare the ids with those of the vendor's console, and the app secret with that of the app",
    131005: _PERMISSIONS,
}


class _Phone(msgspec.Struct):
    id: str
    display_phone_number: str = ""
    status: str = ""


class _List(msgspec.Struct):
    data: list[dict[str, Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class UpstreamProblem:
    """Something that keeps the number from working."""

    text: str
    remedy: str
    is_error: bool = True  # false if messages can be sent all the same


async def run(client: GraphClient, access: UpstreamAccess, now: float) -> Sequence[UpstreamProblem]:
    """Return the problems of an upstream, none if it works.

    now: Unix seconds
    """
    if access.credentials is None:
        remedy = "set them again: tidings number upstream NUMBER cloud"
        return [UpstreamProblem("the credentials cannot be opened with TIDINGS_SETTINGS_KEY", remedy)]
    upstream = access.upstream
    # With a proof of the app secret, a wrong one is refused.
    key, token = access.credentials.app_secret.encode(), access.token.encode()
    proof = hmac.new(key, token, hashlib.sha256).hexdigest()
    fields = urllib.parse.urlencode({"fields": "display_phone_number,status", "appsecret_proof": proof})
    try:
        response = await client.get(access.url(f"{upstream.phone_number_id}?{fields}"), access.token)
        problems = list(_of_phone(response, upstream.phone_number_id))
        if problems and problems[0].is_error:
            return problems
        problems += _of_clock(response, now)
        response = await client.get(access.url(f"{upstream.waba_id}/phone_numbers?fields=id&limit=100"), access.token)
        problems += _of_waba(response, upstream.waba_id, upstream.phone_number_id)
        response = await client.get(access.url(f"{upstream.waba_id}/subscribed_apps"), access.token)
        problems += _of_subscription(response)
    except (NotPosted, ResponseMissing) as error:
        remedy = "check --base-url and the way to it; a private address must be in TIDINGS_OUTGOING_ALLOW_WEBHOOKS"
        return [UpstreamProblem(f"{upstream.base_url} cannot be called: {error}", remedy)]
    return problems


def _of_phone(response: CloudResponse, phone_number_id: str) -> Sequence[UpstreamProblem]:
    refused = _refusal(response, f"phone number id {phone_number_id}")
    if refused is not None:
        return [refused]
    try:
        phone = msgspec.json.decode(response.content, type=_Phone)
    except UNREADABLE:
        return [_no_object(response, f"phone number id {phone_number_id}")]
    if phone.status not in ("", CONNECTED):
        remedy = "register the number at the Cloud API, or see the vendor's console"
        return [UpstreamProblem(f"the number's status is {phone.status[:40]}", remedy, is_error=False)]
    return []


def _of_waba(response: CloudResponse, waba_id: str, phone_number_id: str) -> Sequence[UpstreamProblem]:
    refused = _refusal(response, f"WABA id {waba_id}")
    if refused is not None:
        return [refused]
    try:
        found = msgspec.json.decode(response.content, type=_List).data
    except UNREADABLE:
        return [_no_object(response, f"WABA id {waba_id}")]
    if len(found) < 100 and all(str(phone.get("id")) != phone_number_id for phone in found):
        text = f"WABA {waba_id} has no phone number with the id {phone_number_id}"
        return [UpstreamProblem(text, "compare the ids with those of the vendor's console")]
    return []


def _of_subscription(response: CloudResponse) -> Sequence[UpstreamProblem]:
    try:
        found = msgspec.json.decode(response.content, type=_List).data if response.status == 200 else []
    except UNREADABLE:
        found = []
    if found:
        return []
    remedy = "set the callback in the app, and subscribe the app to the WABA: POST /W/subscribed_apps"
    return [UpstreamProblem("no app gets the webhooks of the WABA, so no status arrives", remedy, is_error=False)]


def _of_clock(response: CloudResponse, now: float) -> Sequence[UpstreamProblem]:
    try:
        theirs = email.utils.parsedate_to_datetime(response.headers.get("date", "")).timestamp()
    except ValueError:
        return []
    difference = now - theirs
    if abs(difference) <= CLOCK_SECONDS:
        return []
    text = f"this machine's clock differs from the Cloud API's by {difference:.0f} s"
    return [UpstreamProblem(text, "synchronise the clock, for example with chrony", is_error=False)]


def _refusal(response: CloudResponse, what: str) -> UpstreamProblem | None:
    error = outcomes.find_error(response.content)
    if error is None:
        return None
    remedy = _REMEDIES.get(error.code, "see the error")
    return UpstreamProblem(f"{what}: {error.shown}", remedy)


def _no_object(response: CloudResponse, what: str) -> UpstreamProblem:
    text = f"{what}: HTTP {response.status} with a body that is not the Cloud API's"
    return UpstreamProblem(text, "check --base-url, such as https://graph.facebook.com/v25.0")
