"""Wiring of the resources of v1."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tidings.keys.media_links import MediaLinks
from tidings.objects.watch import StoreWatch
from tidings.observability.readiness import Readiness
from tidings.storage.business import changes
from webapp.api.account.service import PinHasher, RegistrationService
from webapp.api.application_settings.service import AccountSettings
from webapp.api.backup.service import Backups
from webapp.api.business_encryption import FlowKeys
from webapp.api.certificates.service import Certificates
from webapp.api.compliance.service import ComplianceInfo
from webapp.api.contacts.service import ContactChecks
from webapp.api.documents import Assets, OpenApiDocument
from webapp.api.garbage import Collections
from webapp.api.groups.service import GroupService
from webapp.api.health.readiness import SendingNeeds
from webapp.api.health.service import HealthCheck
from webapp.api.media.references import References
from webapp.api.media.service import MediaStore
from webapp.api.media_providers.service import ProviderList
from webapp.api.messages.received import ReceivedMessages
from webapp.api.messages.service import Messages
from webapp.api.profile.service import ProfileService
from webapp.api.stats.service import Stats
from webapp.api.stickerpacks.service import Stickerpacks
from webapp.api.support import Support
from webapp.api.templates.review import TemplateReview
from webapp.api.templates.service import Templates
from webapp.api.templates.upstream_changes import UpstreamChanges
from webapp.api.testing.rules import NumberRules
from webapp.api.upstream.profiles import UpstreamProfiles
from webapp.auth.idempotency import FirstResponses
from webapp.context import WebappContext
from webapp.http.tls import ServerTLS


@dataclasses.dataclass(frozen=True, slots=True)
class ResourceParts:
    """Services of the resources of v1."""

    templates: Templates
    media: MediaStore
    services: Sequence[object]  # all of them, for the routes


def wire(
    context: WebappContext,
    media_watch: StoreWatch,
    hasher: PinHasher,
    *,
    tls: ServerTLS | None,
    rules: NumberRules | None,
) -> ResourceParts:
    """Create the services.

    tls: certificates of this Webapp; `None` for plaintext
    rules: effects of test numbers; `None` without the test mode
    """
    database, links, clock, safe = context.database, context.links, context.clock, context.safe
    settings, guard = context.settings, context.guard
    media = MediaStore(database, context.files, clock, max_uploads=settings.max_uploads)
    templates = _templates(context)
    references = References(database, safe, clock)
    messages = Messages(
        links,
        templates=templates,
        media=references,
        first_responses=FirstResponses(database, clock),
        received=ReceivedMessages(database),
        rehearsal=rules,
    )
    services: list[object] = [
        messages,
        ContactChecks(links, rules),
        templates,
        media,
        AccountSettings(database, links, guard, safe=safe, statuses_per_post=settings.statuses_per_post),
        ProfileService(database, UpstreamProfiles(database, links, context.files)),
        ComplianceInfo(database),
        FlowKeys(database),
        Backups(database, links, safe=safe, guard=guard, clock=clock),
        ProviderList(database, safe),
        Stickerpacks(database, references),
        RegistrationService(database, links, hasher),
        Certificates(database, links, safe=safe, server=tls, clock=clock),
        Readiness(SendingNeeds(links, database, media_watch).check, clock),
        HealthCheck(links, database),
        Collections(links),
        GroupService(links),
        Support(database, links, data_dir=settings.data_dir, media_dir=settings.media_disk, clock=clock),
        Stats(database, links, clock),
        OpenApiDocument(),
        Assets(),
        MediaLinks(settings.secrets.link_key, clock),
    ]
    return ResourceParts(templates, media, services)


def _templates(context: WebappContext) -> Templates:
    templates = Templates(
        context.database,
        context.settings.account,
        context.clock,
        review=TemplateReview(context.settings.template_review_ms),
        upstream=UpstreamChanges(context.database, context.links),
        owner_of=context.numbers.waba_owner,
    )
    context.changes.on(changes.TEMPLATES, templates.run_once)
    context.changes.on(changes.UPSTREAMS, templates.read_upstreams)
    return templates
