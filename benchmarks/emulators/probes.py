"""Features of an emulator, point by point: each probe is one or a few calls and a judgement of the responses."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from benchmarks.emulators.targets import VERIFY_TOKEN, EmulatorTarget
from benchmarks.emulators.webhook import CountingWebhook
from tests.media_samples import PNG

SECONDS = 30.0  # for events
YES = "yes"


@dataclasses.dataclass(frozen=True, slots=True)
class Bench:
    """Emulated API, client and webhook of a probe."""

    target: EmulatorTarget
    http: httpx.AsyncClient
    webhook: CountingWebhook

    async def send(self, kind: str, content: Any, **fields: Any) -> httpx.Response:
        message = {
            "messaging_product": "whatsapp",
            "to": self.target.ids.recipient,
            "type": kind,
            kind: content,
            **fields,
        }
        return await self.http.post(f"/{self.target.ids.number}/messages", json=message)


Check = Callable[[Bench], Awaitable[str]]


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """One feature, and the check that returns `YES` or what is different."""

    name: str
    check: Check


def _judge(response: httpx.Response) -> str:
    return YES if response.status_code == 200 else f"HTTP {response.status_code}"


def _call(method: str, path: str, **arguments: Any) -> Check:
    """Return a check that a call succeeds. The path may contain the names of `Ids` in braces."""

    async def check(bench: Bench) -> str:
        called = path.format(**dataclasses.asdict(bench.target.ids))
        return _judge(await bench.http.request(method, called, **arguments))

    return check


def _sends(kind: str, content: Any, **fields: Any) -> Check:
    async def check(bench: Bench) -> str:
        return _judge(await bench.send(kind, content, **fields))

    return check


async def _without_version(bench: Bench) -> str:
    url = bench.target.url.rpartition("/")[0]
    return _judge(await bench.http.get(f"{url}/{bench.target.ids.number}"))


async def _escapes(bench: Bench) -> str:
    about = {"messaging_product": "whatsapp", "about": "ü/@"}
    path = f"/{bench.target.ids.number}/whatsapp_business_profile"
    changed = await bench.http.post(path, json=about)
    if changed.status_code != 200:
        return _judge(changed)
    shown = await bench.http.get(f"{path}?fields=about")
    return YES if b"\\u00fc\\/\\u0040" in shown.content else "no"


async def _headers(bench: Bench) -> str:
    response = await bench.http.get(f"/{bench.target.ids.number}")
    wanted = ("facebook-api-version", "x-fb-request-id", "x-business-use-case-usage")
    missing = [name for name in wanted if name not in response.headers]
    return f"without {', '.join(missing)}" if missing else YES


async def _upload(bench: Bench) -> str:
    response = await bench.http.post(
        f"/{bench.target.ids.number}/media",
        data={"messaging_product": "whatsapp"},
        files={"file": ("a.png", PNG, "image/png")},
    )
    media_id: str = response.json()["id"]
    return media_id


async def _media(bench: Bench) -> str:
    media_id = await _upload(bench)
    described = (await bench.http.get(f"/{media_id}")).json()
    whole = await bench.http.get(described["url"])
    part = await bench.http.get(described["url"], headers={"Range": "bytes=0-3"})
    deleted = await bench.http.delete(f"/{media_id}")
    found = {
        "bytes": whole.content == PNG,
        "range": (part.status_code, part.content) == (206, PNG[:4]),
        "deletion": deleted.status_code == 200 and (await bench.http.get(f"/{media_id}")).status_code == 400,
    }
    wrong = [name for name, holds in found.items() if not holds]
    return f"wrong: {', '.join(wrong)}" if wrong else YES


async def _templates(bench: Bench) -> str:
    path = f"/{bench.target.ids.waba}/message_templates"
    definition = {
        "name": "probe",
        "language": "en_US",
        "category": "UTILITY",
        "components": [{"type": "BODY", "text": "Hello"}],
    }
    for response in (
        await bench.http.post(path, json=definition),
        await bench.http.get(path, params={"name": "probe"}),
        await bench.http.delete(path, params={"name": "probe"}),
    ):
        if response.status_code != 200:
            return _judge(response)
    return YES


async def _statuses(bench: Bench) -> str:
    sent = (await bench.send("text", {"body": "statuses"})).json()["messages"][0]["id"]
    found = bench.webhook.statuses
    complete = await bench.webhook.until(lambda: found[sent] >= {"sent", "delivered", "read"}, SECONDS)
    return YES if complete and not bench.webhook.forged else f"{sorted(found[sent])}, {bench.webhook.forged} forged"


async def _unknown_recipient(bench: Bench) -> str:
    response = await bench.send("text", {"body": "nobody"}, to="15550160001")
    if response.status_code != 200:
        return _judge(response)
    sent = response.json()["messages"][0]["id"]
    await bench.webhook.until(lambda: bench.webhook.codes.get(sent) == 131026, 5.0)
    return YES if bench.webhook.codes.get(sent) == 131026 else "no"


async def _retries(bench: Bench) -> str:
    bench.webhook.status = 503
    sent = (await bench.send("text", {"body": "retries"})).json()["messages"][0]["id"]
    name = json.dumps(sent).replace("/", "\\/").encode()

    def tried(least: int) -> bool:
        attempts = [count for body, count in bench.webhook.attempts.items() if name in body or sent.encode() in body]
        return max(attempts, default=0) >= least

    again = await bench.webhook.until(lambda: tried(2), SECONDS)
    bench.webhook.status = 200
    return YES if again else "no"


async def _registers_callback(bench: Bench) -> str:
    body = {
        "object": "whatsapp_business_account",
        "callback_url": bench.webhook.url,
        "verify_token": VERIFY_TOKEN,
        "fields": "messages",
    }
    return _judge(await bench.http.post(f"/{bench.target.ids.app}/subscriptions", json=body))


async def _overrides_callback(bench: Bench) -> str:
    configuration = {"override_callback_uri": bench.webhook.url, "verify_token": VERIFY_TOKEN}
    changed = await bench.http.post(f"/{bench.target.ids.number}", json={"webhook_configuration": configuration})
    if changed.status_code != 200:
        return _judge(changed)
    removed = {"webhook_configuration": {"override_callback_uri": ""}}
    return _judge(await bench.http.post(f"/{bench.target.ids.number}", json=removed))


_PIN = {"messaging_product": "whatsapp", "pin": "123456"}
_BUTTON = {"type": "reply", "reply": {"id": "1", "title": "Yes"}}
_ROW = {"id": "1", "title": "Soup"}
_BODY = {"text": "Choose"}
_LIST = {
    "type": "list",
    "body": _BODY,
    "action": {"button": "Menu", "sections": [{"title": "Today", "rows": [_ROW]}]},
}
_CONTACT = {"name": {"formatted_name": "Ana B", "first_name": "Ana"}, "phones": [{"phone": "+15550110001"}]}

PROBES: tuple[Probe, ...] = (
    Probe("path without a version", _without_version),
    Probe("path with a slash at its end", _call("GET", "/{number}/")),
    Probe("`?fields=`", _call("GET", "/{number}", params={"fields": "status,health_status"})),
    Probe("`\\/`, `\\u0040` and `\\u00fc` in responses", _escapes),
    Probe("headers of the real service", _headers),
    Probe("text", _sends("text", {"body": "Hello"})),
    Probe("image by link", _sends("image", {"link": "https://files.example/a.png"})),
    Probe("location", _sends("location", {"latitude": 48.2, "longitude": 16.4})),
    Probe("contacts", _sends("contacts", [_CONTACT])),
    Probe(
        "buttons",
        _sends("interactive", {"type": "button", "body": _BODY, "action": {"buttons": [_BUTTON]}}),
    ),
    Probe("list", _sends("interactive", _LIST)),
    Probe("files: upload, bytes, range, deletion", _media),
    Probe("templates: create, list, delete", _templates),
    Probe("profile", _call("GET", "/{number}/whatsapp_business_profile")),
    Probe("statuses by signed webhooks", _statuses),
    Probe("a failed status for an unknown recipient (131026)", _unknown_recipient),
    Probe("webhooks are repeated after a 503", _retries),
    Probe("callback registered by the API (`subscriptions`)", _registers_callback),
    Probe("callback of a number (`webhook_configuration`)", _overrides_callback),
    Probe("subscribed apps", _call("GET", "/{waba}/subscribed_apps")),
    Probe("`debug_token`", _call("GET", "/debug_token", params={"input_token": "any"})),
    Probe("resumable uploads", _call("POST", "/{app}/uploads", params={"file_length": "4", "file_type": "image/png"})),
    Probe("block list", _call("GET", "/{number}/block_users")),
    Probe("QR codes", _call("GET", "/{number}/message_qrdls")),
    Probe("registration: `register`", _call("POST", "/{number}/register", json=_PIN)),
    Probe("registration: `deregister`", _call("POST", "/{number}/deregister")),
)


async def run(bench: Bench) -> dict[str, str]:
    """Return the result of each probe. A response in another format than a probe expects is a result, too."""
    found = {}
    for probe in PROBES:
        try:
            found[probe.name] = await probe.check(bench)
        except (httpx.HTTPError, KeyError, ValueError, IndexError, TypeError) as error:
            found[probe.name] = f"{type(error).__name__}: {error}"[:80]
        finally:
            bench.webhook.status = 200
    return found
