"""Layer of the application for the test mode: serves `/tidings/`, and lets requests meet faults."""

from __future__ import annotations

from typing import Protocol

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from tidings.testing.faults import FaultTarget
from webapp.api.testing.mode import PREFIX, TestMode

# First parts of the paths of v1, and of the routes of the Cloud API.
_OF_V1 = {
    "/v1/messages": FaultTarget.MESSAGES,
    "/v1/media": FaultTarget.MEDIA,
    "/v1/configs/templates": FaultTarget.TEMPLATES,
}
_OF_CLOUD = {
    "/{phone-number-id}/messages": FaultTarget.MESSAGES,
    "/{phone-number-id}/media": FaultTarget.MEDIA,
    "/{media-id}": FaultTarget.MEDIA,
    "/whatsapp_business/attachments": FaultTarget.MEDIA,
    "/{waba-id}/message_templates": FaultTarget.TEMPLATES,
    "/{template-id}": FaultTarget.TEMPLATES,
}


class CloudRoutes(Protocol):
    """The Cloud API's routes."""

    def claims(self, path: str) -> bool: ...

    def route(self, path: str) -> str: ...


class TestLayer:
    """Middleware of the test mode. It raises the errors of `TestMode`."""

    __test__ = False  # this is no class of tests

    def __init__(self, app: ASGIApp, mode: TestMode, cloud: CloudRoutes | None) -> None:
        """cloud: the Cloud API's routes; `None` where only v1 is served"""
        self._app = app
        self._mode = mode
        self._cloud = cloud

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = scope["path"]
            if path.startswith(PREFIX):
                response = await self._mode.respond(Request(scope, receive, send))
                await response(scope, receive, send)
                return
            self.apply_fault(path)
        await self._app(scope, receive, send)

    def apply_fault(self, path: str) -> None:
        """Count a request to a path. Raises `InducedFailure` when a fault applies to it."""
        target = self._target(path)
        if target is not None:
            self._mode.apply_fault(target)

    def _target(self, path: str) -> FaultTarget | None:
        """Return the target of a request to a path; `None` for a path that no fault applies to."""
        if path.startswith("/v1/"):
            return next((_OF_V1[first] for first in _OF_V1 if path == first or path.startswith(f"{first}/")), None)
        if self._cloud is None or not self._cloud.claims(path):
            return None
        return _OF_CLOUD.get(self._cloud.route(path))
