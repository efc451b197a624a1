"""Subscription of a number to the Cloud API's webhooks, as the Coreapp follows it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from coreapp import webhook_secrets
from coreapp.cloud_users import CloudUserIds, ShownUser
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.keys import cloud_urls
from tidings.storage.business import cloud_callbacks, cloud_settings, cloud_subscriptions
from tidings.storage.business.cloud_users import CloudUser
from tidings.storage.database import Connection
from tidings.wire.cloud.identity import NumberIdentity

MESSAGES = "messages"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CloudSubscription:
    """Callbacks that get the webhooks of one number, and what they get."""

    identity: NumberIdentity
    url: str  # callback of the field `messages`; empty for none
    app_url: str  # callback of the other fields; empty for none
    fields: frozenset[str]
    version: int  # major version of the webhooks, such as 25
    api_url: str  # URL of the API, without a path, for the URLs of files; empty if it is not known
    shows_identity: bool  # whether webhooks name the identity of a message's sender
    secret: str = dataclasses.field(repr=False)  # secret of the app, which signs
    users: CloudUserIds | None = None  # ids of users; None while they have none

    def show(self, number: str) -> ShownUser:
        """Return the number, name and ids under which webhooks show a user."""
        return self.users.show(number) if self.users is not None else ShownUser(number)

    def to_store(self, *numbers: str) -> Sequence[CloudUser]:
        """Return the rows of those users whose ids are to be stored with a webhook that names them."""
        return self.users.to_store(*numbers) if self.users is not None else ()

    def wants(self, field: str) -> bool:
        """Return whether a webhook with this field is posted."""
        return field in self.fields and bool(self.url if field == MESSAGES else self.app_url)


async def find(
    connection: Connection,
    identity: NumberIdentity,
    *,
    safe: SecretSealer,
    first_secret: str,
    users: CloudUserIds | None = None,
) -> CloudSubscription | None:
    """Return the subscription of a number; `None` unless its app is subscribed to its WABA and there is a callback.

    The callback of the number overrides that of the WABA, which overrides that of the app.

    first_secret: the installation's first webhook secret
    users: ids of users; None while they have none
    """
    rows = await cloud_callbacks.list_of(connection, (identity.phone_number_id, identity.waba_id, identity.app_id))
    if not rows or not await cloud_subscriptions.exists(connection, identity.waba_id, identity.app_id):
        return None
    opened = {row.node_id: cloud_urls.opened(safe, row) for row in rows}
    app = opened.get(identity.app_id)
    own = opened.get(identity.phone_number_id) or opened.get(identity.waba_id) or app
    if own is None:
        return None
    # An app without its own callback has the messages of the overrides.
    fields = frozenset(app.fields) if app is not None else frozenset((MESSAGES,))
    version = (app or own).version
    return CloudSubscription(
        identity=identity,
        url=own.url,
        app_url=app.url if app is not None else "",
        fields=fields,
        version=int(version.removeprefix("v").partition(".")[0]),
        api_url=own.api_url,
        shows_identity=await cloud_settings.shows_identity(connection, identity.account),
        secret=webhook_secrets.app_secret(first_secret, identity.app_id),
        users=users,
    )
