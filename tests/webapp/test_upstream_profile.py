"""Profile and two-step PIN of a number that sends through the real Cloud API: its Coreapp changes them there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.webapp.cloud.conftest import NUMBER as PHONE
from tests.webapp.conftest import Serve, Served, code, errors, make_settings
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.keys import upstream_credentials
from tidings.keys.upstream_credentials import UpstreamCredentials
from tidings.storage.business import numbers, profiles, registrations, upstreams
from tidings.storage.business.profiles import Photo, StoredProfile
from tidings.storage.business.upstreams import Upstream
from tidings.storage.database import Connection, Database
from tidings.wire import codes, core

NUMBER = "15550000000"
ABOUT, PHOTO, BUSINESS = "/v1/settings/profile/about", "/v1/settings/profile/photo", "/v1/settings/business/profile"
TWO_STEP, SHARDS = "/v1/settings/account/two-step", "/v1/account/shards"
JPEG = b"\xff\xd8\xff\xe0" + bytes(range(256)) * 40


@pytest.fixture
async def api(serve: Serve, coreapp: FakeCoreapp, database: Database) -> Served:
    """Webapp of a number that sends through the Cloud API, with a Coreapp that makes every change."""
    coreapp.respond(core.ChangeProfile, lambda request: core.Done(request.n))
    coreapp.respond(core.SetPin, lambda request: core.Done(request.n))
    sealed = upstream_credentials.sealed(SecretSealer(b"s" * 32), NUMBER, UpstreamCredentials("T", "s", "path", "v"))

    async def work(connection: Connection) -> None:
        await numbers.add_first(connection, NUMBER)
        number = await numbers.find(connection, NUMBER)
        assert number is not None
        await upstreams.attach(connection, number, Upstream(NUMBER, "http://x", "1", "2", 80, "", 1), sealed)
        # As the Coreapp has mirrored them.
        await profiles.set_about(connection, NUMBER, "Open")
        await profiles.set_business(connection, NUMBER, StoredProfile("1 Main Street", vertical="Education"))
        await profiles.set_photo(connection, NUMBER, Photo("image/jpeg", JPEG))

    await database.commit(work)
    served = await serve(cloud_api=True)
    await served.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    return served


def requested(coreapp: FakeCoreapp) -> list[Any]:
    """Return the fields of each requested change."""
    return [json.loads(request.fields) for request in coreapp.requested(core.ChangeProfile)]


async def test_the_mirrored_profile_is_returned_without_the_coreapp(api: Served, coreapp: FakeCoreapp) -> None:
    about = (await api.http.get(ABOUT)).json()["settings"]["profile"]["about"]
    business = (await api.http.get(BUSINESS)).json()["settings"]["business"]["profile"]
    assert about == {"text": "Open"}
    assert (business["address"], business["vertical"]) == ("1 Main Street", "Education")
    assert (await api.http.get(PHOTO)).content == JPEG
    assert requested(coreapp) == []


async def test_changes_are_made_by_the_coreapp_alone(api: Served, coreapp: FakeCoreapp) -> None:
    assert (await api.http.patch(ABOUT, json={"text": "Closed"})).status_code == 200
    given = {"address": "2 Main Street", "websites": ["https://example.com"]}
    assert (await api.http.post(BUSINESS, json=given)).status_code == 200
    replaced = {"description": "", "email": "", "vertical": ""}
    assert requested(coreapp) == [{"about": "Closed"}, {**given, **replaced}]
    assert {request.account for request in coreapp.requested(core.ChangeProfile)} == {NUMBER}
    # The Coreapp of this test has mirrored no change.
    assert (await api.http.get(ABOUT)).json()["settings"]["profile"]["about"] == {"text": "Open"}


async def test_a_photo_is_handed_to_the_coreapp_as_a_file_and_then_deleted(
    api: Served, coreapp: FakeCoreapp, database: Database
) -> None:
    handed: list[bytes] = []
    media_dir = make_settings(database).media_dir

    def take(request: core.ChangeProfile) -> core.Done:
        (path,) = [path for path in media_dir.rglob("*") if path.name == request.photo]
        handed.append(path.read_bytes())
        return core.Done(request.n)

    coreapp.respond(core.ChangeProfile, take)
    content = JPEG + bytes(5 * 1024 * 1024 - len(JPEG))
    response = await api.http.post(PHOTO, content=content, headers={"Content-Type": "image/jpeg"})
    assert response.status_code == 200, response.text
    assert handed == [content]
    assert coreapp.requested(core.ChangeProfile)[0].photo_type == "image/jpeg"
    coreapp.refuse(core.ChangeProfile, codes.PARAMETER_INVALID, "the reason")
    response = await api.http.post(PHOTO, content=JPEG, headers={"Content-Type": "image/jpeg"})
    assert code(response) == (400, codes.PARAMETER_INVALID)
    names = {request.photo for request in coreapp.requested(core.ChangeProfile)}
    assert len(names) == 2
    assert [path for path in media_dir.rglob("*") if path.name in names] == []


@pytest.mark.parametrize(("refusal", "status"), [(1009, 400), (1015, 429), (1011, 503), (1000, 500)])
async def test_a_refusal_is_reported_and_stores_nothing(
    api: Served, coreapp: FakeCoreapp, database: Database, refusal: int, status: int
) -> None:
    coreapp.refuse(core.ChangeProfile, refusal, "the reason", 7)
    coreapp.refuse(core.SetPin, refusal, "the reason", 7)
    for response in (
        await api.http.patch(ABOUT, json={"text": "Closed"}),
        await api.http.post(BUSINESS, json={"address": "2 Main Street"}),
        await api.http.post(TWO_STEP, json={"pin": "123456"}),
    ):
        assert code(response) == (status, refusal)
        assert errors(response)[0]["details"] == "the reason"
        assert response.headers["Retry-After"] == "7"
    assert (await api.http.get(ABOUT)).json()["settings"]["profile"]["about"] == {"text": "Open"}
    found = await database.query(lambda connection: registrations.find_registration(connection, NUMBER))
    assert found.pin_hash == ""


async def test_a_coreapp_of_an_earlier_release_gets_no_change_and_keeps_its_connection(
    serve: Serve, api: Served, coreapp: FakeCoreapp
) -> None:
    coreapp.version = 4
    greeted = coreapp.greetings
    coreapp.drop()
    await coreapp.until(lambda: coreapp.greetings > greeted)
    connections = set(coreapp.connections)
    for response in (
        await api.http.patch(ABOUT, json={"text": "Closed"}),
        await api.http.post(PHOTO, content=JPEG),
        await api.http.post(TWO_STEP, json={"pin": "123456"}),
    ):
        assert code(response) == (503, codes.NOT_READY)
        assert "has an earlier release" in errors(response)[0]["details"]
    assert coreapp.requested(core.ChangeProfile) == coreapp.requested(core.SetPin) == []
    assert coreapp.connections == connections


async def test_removing_a_field_that_the_cloud_api_keeps_is_refused_with_a_reason(
    api: Served, coreapp: FakeCoreapp
) -> None:
    for path, words in ((PHOTO, "cannot remove a profile photo"), (TWO_STEP, "cannot remove a two-step PIN")):
        response = await api.http.delete(path)
        assert code(response) == (403, codes.ACCESS_DENIED)
        assert words in errors(response)[0]["details"]
    assert (await api.http.get(PHOTO)).content == JPEG
    assert coreapp.requested(core.SetPin) == []


async def test_a_pin_is_set_in_the_cloud_api_and_then_required_here(api: Served, coreapp: FakeCoreapp) -> None:
    assert (await api.http.post(TWO_STEP, json={"pin": "123456"})).status_code == 200
    (request,) = coreapp.requested(core.SetPin)
    assert (request.account, request.pin) == (NUMBER, "123456")
    change = {"cc": "1", "phone_number": "5550000000", "shards": 1}
    assert code(await api.http.post(SHARDS, json={**change, "pin": "654321"})) == (400, codes.PARAMETER_INVALID)
    assert (await api.http.post(SHARDS, json={**change, "pin": "123456"})).status_code == 201


async def test_calls_of_the_cloud_api_change_the_profile_there_as_well(api: Served, coreapp: FakeCoreapp) -> None:
    profile = f"/v25.0/{PHONE}/whatsapp_business_profile"
    (shown,) = (await api.http.get(profile)).json()["data"]
    assert (shown["about"], shown["vertical"]) == ("Open", "EDU")
    given = {"messaging_product": "whatsapp", "about": "Closed", "vertical": "retail"}
    assert (await api.http.post(profile, json=given)).json() == {"success": True}
    assert requested(coreapp) == [{"about": "Closed", "vertical": "RETAIL"}]
    assert (await api.http.post(f"/v25.0/{PHONE}", json={"pin": "123456"})).json() == {"success": True}
    assert len(coreapp.requested(core.SetPin)) == 1


async def test_a_number_of_the_network_keeps_its_profile_here(
    serve: Serve, coreapp: FakeCoreapp, database: Database
) -> None:
    served = await serve()
    await served.log_in()
    assert (await served.http.patch(ABOUT, json={"text": "Closed"})).status_code == 200
    assert (await served.http.post(PHOTO, content=JPEG)).status_code == 200
    assert (await served.http.delete(PHOTO)).status_code == 200
    assert (await served.http.post(TWO_STEP, json={"pin": "123456"})).status_code == 200
    assert (await served.http.delete(TWO_STEP)).status_code == 200
    assert (await served.http.get(ABOUT)).json()["settings"]["profile"]["about"] == {"text": "Closed"}
    assert coreapp.requested(core.ChangeProfile) == coreapp.requested(core.SetPin) == []
