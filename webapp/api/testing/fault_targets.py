"""Target of a request, for the faults that a test has requested."""

from __future__ import annotations

from typing import Protocol

from tidings.testing.faults import FaultTarget

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


def find(path: str, cloud: CloudRoutes | None) -> FaultTarget | None:
    """Return the target of a request to a path; `None` for a path that no fault applies to.

    cloud: `None` where only v1 is served
    """
    if path.startswith("/v1/"):
        return next((target for first, target in _OF_V1.items() if path == first or path.startswith(f"{first}/")), None)
    if cloud is None or not cloud.claims(path):
        return None
    return _OF_CLOUD.get(cloud.route(path))
