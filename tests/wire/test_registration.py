"""Bodies of registration and keys, as they have always been on the wire."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tidings.wire import registration

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "wire" / "registration.json").read_text())
REQUESTS = {
    "business": registration.Device,
    "business_by_code": registration.Device,
    "handset": registration.Device,
    "robot_without_one_time_keys": registration.Device,
    "robots_in_bulk": registration.Bulk,
    "business_refill": registration.Keys,
    "business_rotation": registration.Keys,
    "handset_refill": registration.Keys,
    "handset_rotation": registration.Keys,
    "code": registration.NewCode,
}


def contains(said: Any, given: Any) -> bool:
    """Is everything that was given in what was understood?"""
    if isinstance(given, dict):
        return all(contains(said[key], value) for key, value in given.items())
    if isinstance(given, list):
        return len(said) == len(given) and all(map(contains, said, given))
    return bool(said == given)


@pytest.mark.parametrize("name", REQUESTS)
def test_what_devices_send_is_understood(name: str) -> None:
    body = msgspec.json.decode(json.dumps(GOLDEN[name]), type=REQUESTS[name])
    assert contains(msgspec.to_builtins(body), GOLDEN[name])
