"""Options of the crash test."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("crash")
    group.addoption("--messages", type=int, default=10_000, help="messages of the kill phases together")
    group.addoption(
        "--batched-messages", type=int, default=4_000, help="as --messages, with several statuses in a post"
    )
    group.addoption("--cloud-messages", type=int, default=20_000, help="as --messages, through the Cloud API")
    group.addoption(
        "--upstream-messages",
        type=int,
        default=1_800,
        help="as --messages, through the Cloud API behind, for each unknown outcome (20,000 writes the results)",
    )
    group.addoption("--point-messages", type=int, default=500, help="messages for each crash point")
    group.addoption("--seed", type=int, help="of the random moments; printed when it is not given")
    group.addoption("--keep", help="copy the logs of the processes to this folder")
    group.addoption("--only", help="only the phases whose names contain this")
