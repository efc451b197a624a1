"""`/v1/configs/templates`: stored definitions, the error of each wrong one, and who may change them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.webapp.conftest import Served, body, code, errors
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.storage.business import templates
from tidings.storage.database import Database
from webapp.api.templates.schemas import Definition

PATH = "/v1/configs/templates"
PLAIN = {"name": "plain", "language": "en_US", "components": [{"type": "body", "text": "Welcome!"}]}


def key(template: dict[str, Any]) -> tuple[str, str, str]:
    return template["name"], template["language"], template["namespace"]


def sending(name: str = "plain", language: str = "en_US") -> dict[str, Any]:
    return {"to": "15550110001", "type": "template", "template": {"name": name, "language": {"code": language}}}


async def test_templates_are_created_listed_and_deleted(api: Served) -> None:
    created = [(await api.http.post(PATH, json=one)).json()["templates"][0] for one in body("templates_good")]
    listed = (await api.http.get(PATH)).json()["templates"]
    assert listed == sorted(created, key=key) == sorted(body("templates_good"), key=key)
    assert (await api.http.delete(f"{PATH}/plain?language=de")).status_code == 200
    assert (await api.http.delete(f"{PATH}/order")).status_code == 200
    assert (await api.http.delete(f"{PATH}/twice?namespace=one")).status_code == 200
    left = [key(one) for one in (await api.http.get(PATH)).json()["templates"]]
    assert ("plain", "en_US", "ns") in left
    assert ("plain", "de", "ns") not in left
    assert "order" not in [name for name, *_ in left]
    assert [namespace for name, _, namespace in left if name == "twice"] == ["two"]


async def test_omitted_fields_get_their_defaults(api: Served) -> None:
    [created] = (await api.http.post(PATH, json=PLAIN)).json()["templates"]
    assert created == {
        "name": "plain",
        "language": "en_US",
        "namespace": templates.default_namespace("15550000000"),
        "category": "UTILITY",
        "status": "APPROVED",
        "parameter_format": "POSITIONAL",
        "components": [{"type": "BODY", "text": "Welcome!"}],
    }


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in body("templates_wrong")])
async def test_an_invalid_definition_is_refused_with_field_and_reason(api: Served, case: dict[str, Any]) -> None:
    response = await api.http.post(PATH, json=case["body"])
    assert code(response) == (400, case["code"]), response.text
    assert case["details"] in [error["details"][: len(case["details"])] for error in errors(response)], response.text
    assert (await api.http.get(PATH)).json()["templates"] == []


async def test_an_authentication_template_gets_the_fixed_text(api: Served) -> None:
    components = [
        {"type": "BODY", "add_security_recommendation": True},
        {"type": "FOOTER", "code_expiration_minutes": "10"},
        {"type": "BUTTONS", "buttons": [{"type": "OTP", "otp_type": "copy_code"}]},
    ]
    definition = {"name": "code", "language": "de", "category": "authentication", "components": components}
    [created] = (await api.http.post(PATH, json=definition)).json()["templates"]
    body_, footer, buttons = created["components"]
    assert body_["text"] == "*{{1}}* is your verification code. For your security, do not share this code."
    assert footer == {"type": "FOOTER", "text": "This code expires in 10 minutes.", "code_expiration_minutes": 10}
    assert buttons["buttons"] == [{"type": "OTP", "text": "Copy code", "otp_type": "COPY_CODE"}]
    [listed] = (await api.http.get(PATH)).json()["templates"]
    assert (await api.http.delete(f"{PATH}/code")).status_code == 200
    assert (await api.http.post(PATH, json=listed)).json()["templates"] == [listed]


async def test_the_default_namespace_is_that_of_the_account(api: Served, coreapp: FakeCoreapp) -> None:
    for namespace in ("other", templates.default_namespace("15550000000")):
        assert (await api.http.post(PATH, json=PLAIN | {"namespace": namespace})).status_code == 201
        # The only namespace with this template, or the account's own.
        assert (await api.http.post("/v1/messages", json=sending())).status_code == 201
    await api.http.delete(f"{PATH}/plain?namespace={templates.default_namespace('15550000000')}")
    assert (await api.http.post(PATH, json=PLAIN | {"namespace": "another"})).status_code == 201
    assert code(await api.http.post("/v1/messages", json=sending())) == (400, 1008)


async def test_an_export_is_imported_as_a_whole_and_again_without_changes(api: Served, coreapp: FakeCoreapp) -> None:
    exported = body("templates_exported")
    response = await api.http.post(f"{PATH}/import", json=exported)
    assert response.status_code == 201, response.text
    made = {(one["name"], one["language"]): one for one in response.json()["templates"]}
    assert [(one["category"], one["status"]) for one in made.values()] == [
        ("UTILITY", "APPROVED"),
        ("AUTHENTICATION", "APPROVED"),
        ("UTILITY", "IN_APPEAL"),
        ("UTILITY", "APPROVED"),
    ]
    assert made["code", "pt_BR"]["components"][2]["buttons"] == [
        {
            "type": "OTP",
            "text": "Copy code",
            "otp_type": "ONE_TAP",
            "autofill_text": "Autofill",
            "package_name": "com.example.app",
            "signature_hash": "K8a/AINcGX7",
        }
    ]
    assert made["order_update", "en_US"]["parameter_format"] == "NAMED"
    again = await api.http.post(f"{PATH}/import", json=exported)
    assert (again.status_code, again.json()["templates"]) == (201, response.json()["templates"])
    sent = sending("old", "de")
    sent["template"]["components"] = [{"type": "body", "parameters": {"type": "text", "text": "5"}}]
    assert (await api.http.post("/v1/messages", json=sent)).status_code == 201
    assert code(await api.http.post("/v1/messages", json=sending("old", "en"))) == (404, 2001)


async def test_an_export_with_an_invalid_template_is_refused_with_its_position(api: Served) -> None:
    assert (await api.http.post(PATH, json=PLAIN | {"namespace": "ns"})).status_code == 201
    good = {"name": "good", "language": "en", "category": "UTILITY", "components": PLAIN["components"]}
    called = {"type": "BUTTONS", "buttons": [{"type": "VOICE_CALL", "text": "Call"}]}
    lines = [
        good,
        good | {"name": "calling", "components": [*PLAIN["components"], called]},
        good,
        PLAIN | {"components": [{"type": "BODY", "text": "Changed"}]},
        "nothing",
    ]
    response = await api.http.post(f"{PATH}/import", json={"data": lines, "namespace": "ns"})
    assert response.status_code == 400
    assert [(error["code"], error["details"][:70]) for error in errors(response)] == [
        (1009, "data[1] (calling in en): components[1].buttons[0].type: should be 'QUIC"[:70]),
        (1009, "data[2] (good in en): is there twice"),
        (
            1004,
            "data[3] (plain in en_US): there is another template with this name in this language and namespace"[:70],
        ),
        (1009, "data[4] (no template): body: should be a JSON object"),
    ]
    assert [one["name"] for one in (await api.http.get(PATH)).json()["templates"]] == ["plain"]
    changed = {"data": [lines[0], lines[3]], "namespace": "ns", "replace": True}
    assert (await api.http.post(f"{PATH}/import", json=changed)).status_code == 201
    listed = (await api.http.get(PATH)).json()["templates"]
    assert [(one["name"], one["components"][0]["text"]) for one in listed] == [
        ("good", "Welcome!"),
        ("plain", "Changed"),
    ]


async def test_a_template_name_is_unique_per_language(api: Served) -> None:
    assert (await api.http.post(PATH, json=PLAIN)).status_code == 201
    assert code(await api.http.post(PATH, json=PLAIN)) == (400, 1004)
    assert (await api.http.post(PATH, json=PLAIN | {"language": "de"})).status_code == 201


@pytest.mark.parametrize("path", ["nothing", "plain?language=fr", "x" * 512])
async def test_deleting_an_unknown_template_gets_404(api: Served, path: str) -> None:
    await api.http.post(PATH, json=PLAIN)
    assert code(await api.http.delete(f"{PATH}/{path}")) == (404, 1006)
    assert code(await api.http.delete(f"{PATH}/%C3%BC")) == (400, 1009)


async def test_templates_require_a_token(api: Served) -> None:
    del api.http.headers["Authorization"]
    for method, path in (("GET", PATH), ("POST", PATH), ("DELETE", f"{PATH}/x")):
        assert code(await api.http.request(method, path, json=PLAIN)) == (401, 1005)


async def test_templates_created_elsewhere_work_at_once_and_deletions_after_one_poll(
    api: Served, database: Database, coreapp: FakeCoreapp
) -> None:
    assert code(await api.http.post("/v1/messages", json=sending())) == (404, 2001)
    async with database.transaction() as connection:
        assert await templates.add_template(connection, Definition.model_validate(PLAIN).row("15550000000", 1))
    assert (await api.http.post("/v1/messages", json=sending())).status_code == 201
    async with database.transaction() as connection:
        assert await templates.delete_templates(connection, "15550000000", "plain") == 1
    await api.parts.resources.templates.run_once()
    assert code(await api.http.post("/v1/messages", json=sending())) == (404, 2001)


async def test_a_template_is_edited_in_one_language(api: Served) -> None:
    for language in ("en_US", "de"):
        assert (await api.http.post(PATH, json=PLAIN | {"language": language})).status_code == 201
    changed = {"components": [{"type": "body", "text": "Hi!"}]}
    response = await api.http.patch(f"{PATH}/plain", json=changed)
    assert code(response) == (400, 1008)
    assert errors(response)[0]["details"] == "language, namespace: name one of the 2 templates plain"
    response = await api.http.patch(f"{PATH}/plain?language=de", json=changed)
    assert response.status_code == 200, response.text
    [edited] = response.json()["templates"]
    assert (edited["language"], edited["components"]) == ("de", [{"type": "BODY", "text": "Hi!"}])
    english = next(one for one in (await api.http.get(PATH)).json()["templates"] if one["language"] == "en_US")
    assert english["components"] == [{"type": "BODY", "text": "Welcome!"}]
    assert (await api.http.delete(f"{PATH}/plain?language=en_US")).status_code == 200
    assert (await api.http.patch(f"{PATH}/plain", json=changed)).status_code == 200


@pytest.mark.parametrize(
    ("path", "changes", "expected"),
    [
        ("plain", {}, (400, 1008)),
        ("plain", {"components": []}, (400, 1008)),
        ("plain", {"components": [{"type": "BODY"}]}, (400, 1008)),
        ("plain", {"category": "SALES"}, (400, 1009)),
        ("plain", {"category": "MARKETING"}, (400, 1009)),
        ("nothing", {"category": "UTILITY"}, (404, 1006)),
        ("plain?language=de", {"category": "UTILITY"}, (404, 1006)),
        ("pl%C3%A4in", {"category": "UTILITY"}, (400, 1009)),
    ],
)
async def test_an_invalid_edit_is_refused(
    api: Served, path: str, changes: dict[str, Any], expected: tuple[int, int]
) -> None:
    assert (await api.http.post(PATH, json=PLAIN)).status_code == 201
    assert code(await api.http.patch(f"{PATH}/{path}", json=changes)) == expected


async def test_a_template_is_created_once_when_the_outcome_of_the_commit_is_unknown(
    api: Served, lost_commit: list[bool]
) -> None:
    lost_commit.append(True)
    response = await api.http.post(PATH, json=PLAIN)
    assert not lost_commit
    assert response.status_code == 201, response.text


async def test_a_template_is_deleted_when_the_outcome_of_the_commit_is_unknown(
    api: Served, lost_commit: list[bool]
) -> None:
    await api.http.post(PATH, json=PLAIN)
    lost_commit.append(True)
    response = await api.http.delete(f"{PATH}/plain")
    assert not lost_commit
    assert response.status_code == 200, response.text
