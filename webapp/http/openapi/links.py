"""Links of the OpenAPI document: calls that use values of another call's response."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class OperationLink:
    """Link from the response of `source` to the call `target`.

    `parameters` and `body` contain runtime expressions of OpenAPI, which locate values in the source's request or
    response.
    """

    source: tuple[str, str, str]  # method, path and status
    target: tuple[str, str]  # method and path
    parameters: Mapping[str, str] = dataclasses.field(default_factory=dict)  # runtime expressions by parameter name
    body: Any = None  # request body with runtime expressions; `None` for none


def _of_one(source: tuple[str, str, str], path: str, methods: str, **parameters: str) -> list[OperationLink]:
    return [OperationLink(source, (method, path), parameters) for method in methods.split()]


_USER, _PACK, _STICKER = "/v1/users/{username}", "/v1/stickerpacks/{id}", "/v1/stickerpacks/{id}/stickers/{index}"
_GROUP, _IDENTITY = "/v1/groups/{group_id}", "/v1/contacts/{wa_id}/identity"
_PROVIDERS = "/v1/settings/application/media/providers"
_MESSAGES = ("post", "/v1/messages")
_NEW_USER = ("post", "/v1/users", "201")
_NEW_TEMPLATE = ("post", "/v1/configs/templates", "201")
_NEW_MEDIA = ("post", "/v1/media", "200")
_NEW_PACK = ("post", "/v1/stickerpacks", "201")
_NEW_STICKER = ("post", "/v1/stickerpacks/{id}/stickers", "201")
_NEW_GROUP = ("post", "/v1/groups", "201")
_CONTACT = "$response.body#/contacts/0/wa_id"
_TEMPLATE = "$response.body#/templates/0"
_GROUP_ID = "$response.body#/groups/0/id"

LINKS: tuple[OperationLink, ...] = (
    *_of_one(_NEW_USER, _USER, "get put delete", username="$response.body#/users/0/username"),
    *_of_one(_NEW_USER, f"{_USER}/tokens", "delete", username="$response.body#/users/0/username"),
    *_of_one(_NEW_TEMPLATE, "/v1/configs/templates/{name}", "patch delete", name=f"{_TEMPLATE}/name"),
    OperationLink(
        _NEW_TEMPLATE,
        _MESSAGES,
        body={
            "to": "15550110001",
            "type": "template",
            "template": {
                "namespace": f"{_TEMPLATE}/namespace",
                "name": f"{_TEMPLATE}/name",
                "language": {"policy": "deterministic", "code": f"{_TEMPLATE}/language"},
            },
        },
    ),
    *_of_one(_NEW_MEDIA, "/v1/media/{media_id}", "get delete", media_id="$response.body#/media/0/id"),
    OperationLink(
        _NEW_MEDIA,
        _MESSAGES,
        body={"to": "15550110001", "type": "document", "document": {"id": "$response.body#/media/0/id"}},
    ),
    *_of_one(_NEW_PACK, _PACK, "get patch delete", id="$response.body#/stickerpacks/0/id"),
    *_of_one(_NEW_PACK, f"{_PACK}/stickers", "get post", id="$response.body#/stickerpacks/0/id"),
    *_of_one(
        _NEW_STICKER, _STICKER, "get patch delete", id="$request.path.id", index="$response.body#/stickers/0/index"
    ),
    *_of_one(("post", _PROVIDERS, "200"), _PROVIDERS + "/{name}", "delete", name="$request.body#/0/name"),
    *_of_one(_NEW_GROUP, _GROUP, "get put", group_id=_GROUP_ID),
    *_of_one(_NEW_GROUP, f"{_GROUP}/icon", "post", group_id=_GROUP_ID),
    *_of_one(("post", f"{_GROUP}/icon", "200"), f"{_GROUP}/icon", "get delete", group_id="$request.path.group_id"),
    *_of_one(_NEW_GROUP, f"{_GROUP}/invite", "get delete", group_id=_GROUP_ID),
    *_of_one(_NEW_GROUP, f"{_GROUP}/leave", "post", group_id=_GROUP_ID),
    *_of_one(_NEW_GROUP, f"{_GROUP}/participants", "delete", group_id=_GROUP_ID),
    *_of_one(_NEW_GROUP, f"{_GROUP}/admins", "patch delete", group_id=_GROUP_ID),
    OperationLink(
        _NEW_GROUP,
        _MESSAGES,
        body={"recipient_type": "group", "to": _GROUP_ID, "type": "text", "text": {"body": "Hello"}},
    ),
    OperationLink(
        ("post", "/v1/contacts", "200"),
        _MESSAGES,
        body={"to": _CONTACT, "type": "text", "text": {"body": "Hello"}},
    ),
    *_of_one(("post", "/v1/contacts", "200"), _IDENTITY, "get", wa_id=_CONTACT),
    OperationLink(
        ("get", _IDENTITY, "200"),
        ("put", _IDENTITY),
        {"wa_id": "$request.path.wa_id"},
        {"hash": "$response.body#/contacts/hash"},
    ),
    OperationLink(
        ("post", "/v1/settings/backup", "200"),
        ("post", "/v1/settings/restore"),
        body={"password": "$request.body#/password", "data": "$response.body#/settings/data"},
    ),
)


def add(document: Mapping[str, Any]) -> None:
    """Add to an OpenAPI document those `LINKS` whose source and target it contains."""
    paths = document["paths"]
    for link in LINKS:
        method, path, status = link.source
        source = paths.get(path, {}).get(method)
        target = paths.get(link.target[1], {}).get(link.target[0])
        if source is None or target is None:
            continue
        described: dict[str, Any] = {"operationId": target["operationId"]}
        if link.parameters:
            described["parameters"] = dict(link.parameters)
        if link.body is not None:
            described["requestBody"] = link.body
        source["responses"][status].setdefault("links", {})[target["operationId"]] = described
