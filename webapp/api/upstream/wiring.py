"""Wiring of the callbacks of the real Cloud API."""

from __future__ import annotations

from tidings.storage.business import changes
from webapp.api.upstream.service import UpstreamCallbacks
from webapp.context import WebappContext


def wire(context: WebappContext) -> UpstreamCallbacks:
    """Create the service of the callbacks, which follows changes of the numbers' upstreams."""
    prefix = str(context.settings.cloud_standin)
    callbacks = UpstreamCallbacks(
        context.database, context.links, safe=context.safe, clock=context.clock, standin_prefix=prefix
    )
    context.changes.on(changes.UPSTREAMS, callbacks.poll)
    return callbacks
