"""Wiring of a shard whose number sends through the Cloud API: the parts that take the place of those of the network."""

from __future__ import annotations

import dataclasses
import functools

from coreapp.accepting.checks import RecipientChecks
from coreapp.context import ShardContext
from coreapp.groups.wiring import ShardGroups
from coreapp.media.wiring import ShardMedia, wire_media
from coreapp.peers.wiring import ShardPeers
from coreapp.recovery.wiring import Recovery
from coreapp.sending.wiring import MakeEncryption, Sending
from coreapp.statuses.wiring import Statuses
from coreapp.upstream.checks import UpstreamChecks
from coreapp.upstream.contents import NoKeptContents
from coreapp.upstream.files import UpstreamQueue, exchange_of, upload_again
from coreapp.upstream.inbox import UpstreamInbox
from coreapp.upstream.profile_changes import ProfileChanges
from coreapp.upstream.profiles import ProfileMirror
from coreapp.upstream.sender import UpstreamSender
from coreapp.upstream.template_changes import TemplateChanges
from coreapp.upstream.templates import TemplateMirror


def make_sender(context: ShardContext) -> MakeEncryption | None:
    """Return the function that creates the sender; None for a number that uses the network."""
    return functools.partial(UpstreamSender, number=context.upstream) if context.upstream is not None else None


def make_media(context: ShardContext, sending: Sending) -> ShardMedia:
    """Return the media parts; those of a number of the Cloud API exchange its files with it."""
    media = wire_media(context, sending, exchange_of(context))
    if not isinstance(sending.encryption, UpstreamSender):
        return media
    sending.encryption.upload_again = functools.partial(upload_again, media.preparation)
    return dataclasses.replace(media, preparation_queue=UpstreamQueue.like(media.preparation_queue))


def without_kept_contents(context: ShardContext, recovery: Recovery, peers: ShardPeers) -> Recovery:
    """Return the recovery parts; those of a number of the Cloud API keep no contents: nothing is encrypted again."""
    if context.upstream is None:
        return recovery
    return dataclasses.replace(recovery, sent_contents=NoKeptContents(context.device, peers.sessions))


def make_checks(context: ShardContext, peers: ShardPeers, groups: ShardGroups) -> RecipientChecks:
    """Return the checks of recipients; those of a number of the Cloud API leave most to it."""
    checks = UpstreamChecks if context.upstream is not None else RecipientChecks
    return checks(context, peers, groups.requests)


def make_inbox(
    context: ShardContext, statuses: Statuses, *, peers: ShardPeers, media: ShardMedia, sending: Sending
) -> UpstreamInbox | None:
    """Return the inbound side; None for a number that uses the network."""
    if context.upstream is None or not isinstance(sending.encryption, UpstreamSender):
        return None
    client = context.upstream.client
    return UpstreamInbox(
        context,
        statuses,
        peers=peers,
        media=media,
        sender=sending.encryption,
        templates=TemplateChanges(context, client, TemplateMirror(context, client)),
        profile=ProfileChanges(context, client, ProfileMirror(context, client)),
    )
