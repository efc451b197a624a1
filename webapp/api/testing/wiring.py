"""Wiring of the test mode."""

from __future__ import annotations

from tidings.http.hosts import Hosts
from tidings.testing.faults import FaultFile
from webapp.api.cloud.access import CloudAccess
from webapp.api.testing.mode import TestMode
from webapp.api.testing.robots_link import RobotsLink
from webapp.api.testing.rules import NumberRules
from webapp.context import WebappContext


def wire(context: WebappContext, access: CloudAccess) -> tuple[TestMode | None, NumberRules | None]:
    """Create the test mode and the effects of test numbers; return `None` for both when it is off.

    access: check of the Cloud API's tokens
    """
    settings = context.settings
    if not settings.testing:
        return None, None
    robots = RobotsLink(settings.data_dir)
    mode = TestMode(
        robots=robots,
        faults=FaultFile(settings.data_dir),
        coreapps=context.links,
        primary_coreapps=context.links,
        hosts=Hosts(settings.allowed_hosts),
        access=access,
        embedded=settings.embedded,
        with_user_ids=settings.cloud_user_ids,
    )
    return mode, NumberRules(robots)
