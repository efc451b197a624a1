"""The Cloud API as a layer of the application: finds the handler of a call, and responds in every case."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping

from fastapi import Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tidings.aio.lru import LRU
from tidings.observability.tracing import TRACES
from tidings.storage.database import DatabaseError
from tidings.wire.cloud.identity import IdentityDirectory, NumberIdentity, ObjectKind
from tidings.wire.cloud.media_ids import is_media_id
from webapp.api.cloud import errors, management_calls, paths, pictures, responses
from webapp.api.cloud.access import CloudAccess
from webapp.api.cloud.calls import CloudCall
from webapp.api.cloud.endpoints import EDGES, ENDPOINTS, LEFT_OUT, MEDIA, UPLOAD, name_of
from webapp.api.cloud.errors import GraphError
from webapp.api.cloud.management_calls import ManagementCalls
from webapp.api.cloud.paths import Target
from webapp.http import dependencies, envelope
from webapp.http.errors import APIError, Unauthenticated

log = logging.getLogger(__name__)

_NAMED: Mapping[str, str] = {name: name for name in paths.NAMES}
_SHOWN: Mapping[str, str] = {
    ObjectKind.NUMBER: "{phone-number-id}",
    ObjectKind.WABA: "{waba-id}",
    ObjectKind.APP: "{app-id}",
    ObjectKind.BUSINESS: "{business-id}",
    ObjectKind.TEMPLATE: "{template-id}",
    MEDIA: "{media-id}",
    UPLOAD: "{upload-id}",
}


def route_of(kind: str, edge: str) -> str:
    """Return the route of an endpoint, with a placeholder for the id."""
    return f"/{_SHOWN.get(kind, kind)}" + (f"/{edge}" if edge else "")


@dataclasses.dataclass(frozen=True, slots=True)
class NamedRoute:
    """Route of a request under the name that logs, metrics and traces show."""

    path: str


class Facade:
    """The Cloud API of an installation."""

    def __init__(
        self,
        directory: IdentityDirectory,
        access: CloudAccess,
        *,
        throttle_status: int,
        management: ManagementCalls | None = None,
    ) -> None:
        """Create the API.

        throttle_status: HTTP status of rate limits
        management: limit on management calls; `None` for none
        """
        self._directory = directory
        self._access = access
        self._throttle_status = throttle_status
        self._management = management
        self._targets: LRU[str, Target] = LRU(1_000)

    def claims(self, path: str) -> bool:
        """Return whether a path belongs to the Cloud API."""
        return paths.claims(path)

    def identity_of(self, account: str) -> NumberIdentity:
        """Return the ids of a business number, which must be one of this installation."""
        return self._directory.of(account)

    def sends(self, path: str) -> bool:
        """Return whether a path is the one to which messages are posted."""
        return path.endswith("/messages") and paths.claims(path)

    def route(self, path: str) -> str:
        """Return the route of a path, with placeholders for ids, for metrics and logs."""
        target = self._target(path)
        kind = self._kind(target.node)
        edge = name_of(target.edge)
        if (kind, edge) not in EDGES:
            return "none"
        return route_of(kind, edge)

    def respond_with_error(self, error: APIError, scope: Scope) -> Response:
        """Return the response to an error of an outer layer."""
        return self._failed(errors.translate(error, self._throttle_status), self._target(scope["path"]))

    async def respond(self, request: Request) -> Response:
        """Return the response to a request. Raises unexpected errors only."""
        if TRACES.tracer is not None or log.isEnabledFor(logging.DEBUG):
            request.scope["route"] = NamedRoute(self.route(request.scope["path"]))
        target, trace = self._target(request.scope["path"]), responses.new_trace()
        try:
            return await self._handle(request, target, trace)
        except GraphError as error:
            return self._failed(error, target, trace)
        except (APIError, DatabaseError) as error:
            found = envelope.as_api_error(error, request.scope["state"]["request_id"])
            response = self._failed(errors.translate(found, self._throttle_status), target, trace)
            if response.status_code >= 500:
                log.warning(
                    "http.failed", extra={"request_id": request.scope["state"]["request_id"], "error": str(error)}
                )
            return response

    async def _handle(self, request: Request, target: Target, trace: str) -> Response:
        method = request.scope["method"]
        if not target.is_known or not target.node:
            raise errors.unknown_path(request.scope["path"])
        if (target.node, target.edge, method) == (paths.ATTACHMENTS, pictures.EDGE, "GET"):
            return await pictures.show(request, target, trace, self._directory)
        try:
            caller = await self._access.caller(request, target.node)
        except (GraphError, Unauthenticated):
            if target.node == paths.ATTACHMENTS:
                raise errors.no_such_url() from None
            raise
        # Only now: the check of the token may have found new numbers.
        kind = self._kind(target.node)
        identity, parts = self._directory.of(caller.account), dependencies.parts_of(request)
        call = CloudCall(request, target, trace, caller, identity, self._directory, parts)
        handler = ENDPOINTS.get((kind, name_of(target.edge), method))
        if handler is None and (kind, target.edge.partition("/")[0]) in LEFT_OUT:
            raise errors.no_capability()
        # Handlers check media and templates themselves.
        if handler is None or self._directory.is_foreign(target.node, caller.account):
            raise call.unsupported()
        if self._management is not None and management_calls.is_counted(kind, target.edge):
            members = self._directory.accounts_of(call.identity.waba_id)
            call.share = await self._management.admit(call.identity, members)
        return await handler(call)

    def _kind(self, node: str) -> str:
        """Return the kind of object that a node is; empty for none."""
        found = self._directory.kind(node)
        if found is not None:
            return found
        if node.startswith(paths.UPLOAD):
            return UPLOAD
        return _NAMED.get(node, "") or (MEDIA if is_media_id(node) else "")

    def _target(self, path: str) -> Target:
        target = self._targets.get(path)
        if target is None:
            target = paths.parse(path)
            if len(path) <= paths.MAX_CACHED:
                self._targets.put(path, target)
        return target

    def _failed(self, error: GraphError, target: Target, trace: str = "") -> Response:
        return responses.error_response(error, target.version, trace or responses.new_trace())


class FacadeLayer:
    """Middleware that passes the paths of the Cloud API to the façade."""

    def __init__(self, app: ASGIApp, facade: Facade) -> None:
        self._app = app
        self._facade = facade

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._facade.claims(scope["path"]):
            await self._app(scope, receive, send)
            return
        response = await self._facade.respond(Request(scope, receive, send))
        await response(scope, receive, send)
