"""Short run of schemathesis over every operation, always the same; `make fuzz` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import rig, run, verdict
from tests.fuzz.run import FuzzedApi

pytestmark = pytest.mark.whole_system

SECONDS = 35


@pytest.mark.parametrize("api", [pytest.param(api, id=api.name) for api in run.APIS.values()])
async def test_the_openapi_document_describes_the_systems_behaviour(tmp_path: Path, api: FuzzedApi) -> None:
    async with rig.running(tmp_path) as target:
        outcome = await run.fuzz(tmp_path, target, SECONDS, ["--seed=1", "--generation-deterministic"], api=api)
        found = await verdict.complaints(target, outcome)
    assert not found, f"{found}\n{outcome.output}\n{outcome.table()}"
