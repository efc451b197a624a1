"""Bodies of registration and keys, in their stable form on the wire."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tidings.wire import registration

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "wire" / "registration.json").read_text())
REQUESTS = {
    "business": registration.DeviceRegistration,
    "business_by_code": registration.DeviceRegistration,
    "handset": registration.DeviceRegistration,
    "robot_without_one_time_keys": registration.DeviceRegistration,
    "robots_in_bulk": registration.BulkRegistration,
    "business_refill": registration.KeyUpload,
    "business_rotation": registration.KeyUpload,
    "handset_refill": registration.KeyUpload,
    "handset_rotation": registration.KeyUpload,
    "code": registration.CodeRequest,
}


RESPONSES = {
    "registered": registration.Registered,
    "registered_in_bulk": registration.BulkRegistered,
    "keys_left": registration.KeysLeft,
}


def contains(said: Any, given: Any) -> bool:
    """Return whether everything given is in what was understood. An empty list may be left out."""
    if isinstance(given, dict):
        return all(contains(said.get(key, []), value) for key, value in given.items())
    if isinstance(given, list):
        return len(said) == len(given) and all(map(contains, said, given))
    return bool(said == given)


@pytest.mark.parametrize("name", [*REQUESTS, *RESPONSES])
def test_every_field_of_a_recorded_body_is_decoded(name: str) -> None:
    body = msgspec.json.decode(json.dumps(GOLDEN[name]), type={**REQUESTS, **RESPONSES}[name])
    assert contains(msgspec.to_builtins(body), GOLDEN[name])


@pytest.mark.parametrize("name", REQUESTS)
def test_encoded_request_bodies_equal_the_recorded_ones(name: str) -> None:
    body = msgspec.json.decode(json.dumps(GOLDEN[name]), type=REQUESTS[name])
    sent = json.loads(msgspec.json.encode(body))
    # An empty list of one-time pre-keys is left out.
    assert sent == {key: value for key, value in GOLDEN[name].items() if value != []}
