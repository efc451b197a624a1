"""Wiring of the Cloud API."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from tidings.storage.business import changes
from tidings.wire.cloud.identity import IdentityDirectory, derive
from webapp.api.cloud.access import CloudAccess, OpenAccess
from webapp.api.cloud.block_list import BlockList
from webapp.api.cloud.facade import Facade
from webapp.api.cloud.limits import NumberSendingLimits, SendingLimits
from webapp.api.cloud.management_calls import ManagementCalls
from webapp.api.cloud.number_settings import CloudNumberSettings
from webapp.api.cloud.pictures import PictureLinks
from webapp.api.cloud.qr_code_list import QrCodeList
from webapp.api.cloud.settings_changes import SettingsChanges
from webapp.api.cloud.subscriptions import Subscriptions
from webapp.api.cloud.upload_sessions import UploadSessions
from webapp.api.cloud.users import CloudUsers
from webapp.api.cloud.verification import CallbackVerifier
from webapp.api.media.service import MediaStore
from webapp.auth.authenticator import NumberLimits
from webapp.context import WebappContext

HIGH_THROUGHPUT = 1_000.0  # messages per second of a number after the upgrade


@dataclasses.dataclass(frozen=True, slots=True)
class CloudDirectory:
    """Ids of all numbers in the Cloud API, and the check of its tokens."""

    ids: IdentityDirectory
    access: CloudAccess

    @classmethod
    def of(cls, context: WebappContext) -> CloudDirectory:
        """Create the directory, which follows the numbers of the installation."""
        settings, numbers, ids = context.settings, context.numbers, IdentityDirectory([])
        numbers.watch(
            lambda accounts: ids.replace(derive(account, numbers.waba_owner(account)) for account in accounts)
        )
        return cls(ids, CloudAccess(OpenAccess(ids, numbers, settings.account) if settings.cloud_open else None))


@dataclasses.dataclass(frozen=True, slots=True)
class CloudParts:
    """The Cloud API of one Webapp."""

    facade: Facade | None  # `None` when it is off
    limits: NumberSendingLimits
    services: Sequence[object]  # services of the calls


def wire(context: WebappContext, directory: CloudDirectory, limits: NumberLimits, media: MediaStore) -> CloudParts:
    """Create the façade if it is on, and the services of its calls.

    limits: rate limits of v1, which sending shares
    """
    settings, database, clock = context.settings, context.database, context.clock
    sending = NumberSendingLimits(
        database,
        clock,
        SendingLimits(settings.cloud_pair_limit, settings.cloud_tier),
        owner_of=context.numbers.waba_owner,
        set_throughput=functools.partial(_set_throughput, context, limits),
    )
    if settings.cloud_api:
        context.changes.on(changes.CLOUD_LIMITS, sending.poll)
    announced = SettingsChanges(database, context.links)
    services: list[object] = [
        sending,
        UploadSessions(database, context.files, media, clock=clock, max_uploads=settings.max_uploads),
        PictureLinks(settings.secrets.link_key),
        Subscriptions(database, clock, announced, safe=context.safe, directory=directory.ids),
        BlockList(database, clock, announced),
        QrCodeList(database, clock),
        CloudNumberSettings(database, announced),
        CloudUsers(database, enabled=settings.cloud_user_ids, owner_of=context.numbers.waba_owner),
        CallbackVerifier(database, context.guard),
    ]
    return CloudParts(_facade(context, directory), sending, services)


def _facade(context: WebappContext, directory: CloudDirectory) -> Facade | None:
    settings = context.settings
    if not settings.cloud_api:
        return None
    status = settings.cloud_throttle_status
    management = None
    if settings.cloud_management_limit:
        management = ManagementCalls(context.database, context.clock, throttle_status=status)
    return Facade(directory.ids, directory.access, throttle_status=status, management=management)


def _set_throughput(context: WebappContext, limits: NumberLimits, account: str, is_high: bool) -> None:
    """Set the rate of messages of a number, which v1 shares. Without a limit there is none."""
    rate, burst = context.settings.messages_rate, context.settings.messages_burst
    if rate:
        least = HIGH_THROUGHPUT if is_high else 0.0
        limits.of(account).messages.share.set_rate(max(rate, least), max(burst, least))
