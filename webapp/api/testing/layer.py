"""Layer of the application for the test mode: serves `/tidings/`, and lets requests meet faults."""

from __future__ import annotations

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from webapp.api.testing import fault_targets
from webapp.api.testing.fault_targets import CloudRoutes
from webapp.api.testing.mode import PREFIX, TestMode


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
                answer = await self._mode.respond(Request(scope, receive, send))
                await answer(scope, receive, send)
                return
            self.meet_fault(path)
        await self._app(scope, receive, send)

    def meet_fault(self, path: str) -> None:
        """Count a request to a path. Raises `InducedFailure` when it meets a fault."""
        target = fault_targets.find(path, self._cloud)
        if target is not None:
            self._mode.meet_fault(target)
