"""Checks of the business's database: the business number, the keys, and the stored webhook."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from cli.doctor.findings import Finding, error, fine, warning
from cli.doctor.webhook import WebhookCheck
from coreapp import webhook_secrets
from coreapp.webhook_secrets import WebhookSecrets
from tidings.e2ee import master_keys
from tidings.e2ee.installation_secrets import SecretSealer, UnreadableSecret
from tidings.egress.settings import OutgoingSettings
from tidings.keys import webhook_url
from tidings.secrets.process_secrets import SecretKeys
from tidings.storage.business import accounts, application_settings, certificates, key_checks, numbers, upstreams
from tidings.storage.database import Database


class NumberCheck:
    """Check of the numbers of the business that the database is for."""

    name = "business number"

    def __init__(self, database: Database, number: str, hosts: Mapping[str, str] | None = None) -> None:
        """Create the check.

        number: first number
        hosts: number by host name, as the Webapp has them; None for other processes
        """
        self._database = database
        self._number = number
        self._hosts = hosts or {}

    async def run(self) -> Sequence[Finding]:
        await accounts.require_number(self._database, self._number)
        async with self._database.reading() as connection:
            rows = await numbers.list_numbers(connection)
            present = [self._number, *(row.number for row in rows if not row.is_first)]
            registered = {number for number in present if await accounts.is_registered(connection, number)}
            bridged = {upstream.account for upstream in await upstreams.list_all(connection)}
        found = []
        for number in present:
            state = "registered with the network" if number in registered else "not registered with the network yet"
            found.append(fine(self.name, f"{number}, {'through the Cloud API' if number in bridged else state}"))
        for row in rows:
            if row.state == numbers.PAUSED:
                remedy = f"`tidings number resume {row.number}` serves it again"
                found.append(warning(self.name, f"{row.number} is paused: its API requests get 503/1011", remedy))
            elif row.state == numbers.REMOVING:
                remedy = f"run `tidings number remove {row.number}` again"
                found.append(warning(self.name, f"the removal of {row.number} is incomplete", remedy))
        served = {self._number, *(row.number for row in rows if row.state != numbers.REMOVING)}
        for host, number in self._hosts.items():
            if number not in served:
                text = f"TIDINGS_NUMBER_HOSTS: {host} stands for {number}, which this installation does not have"
                remedy = f"run `tidings number add {number}`, or remove the host; the Webapp does not start"
                found.append(error(self.name, text, remedy))
        return found


class KeysCheck:
    """Check of the keys that the database is sealed under."""

    name = "keys"

    def __init__(self, database: Database, keys: Mapping[str, SecretKeys]) -> None:
        """keys: keys by their names in the table of key checks."""
        self._database = database
        self._keys = keys

    async def run(self) -> Sequence[Finding]:
        found = []
        for name, keys in self._keys.items():
            async with self._database.reading() as connection:
                check = await key_checks.find(connection, name)
            here = [master_keys.key_id(key) for key in keys.keys]
            if check is not None and check.key_id not in here:
                text = (
                    f"{keys.source}: the {name} key {here[0]} is not {check.key_id}, which the database is sealed under"
                )
                found.append(error(self.name, text, "give every process the same key: `tidings keys status` shows ids"))
            else:
                found.append(fine(self.name, f"the {name} key {here[0]} is the database's"))
        return found


@dataclasses.dataclass(eq=False, repr=False)
class StoredWebhookCheck:
    """Check of the webhook that is set in the database for each number."""

    name = "webhook"

    database: Database
    account: str
    outgoing: OutgoingSettings
    _: dataclasses.KW_ONLY
    settings_key: SecretKeys
    webhook_secret: str  # first webhook secret of the installation; empty if unknown
    revocations: Path | None  # as for `WebhookCheck`
    post: bool  # as for `WebhookCheck`

    def __post_init__(self) -> None:
        self._safe = SecretSealer(*self.settings_key.keys, read=self.settings_key.read)

    async def run(self) -> Sequence[Finding]:
        async with self.database.reading() as connection:
            served = [self.account, *(row.number for row in await numbers.list_served(connection) if not row.is_first)]
        if len(served) == 1:
            return await self._check(self.account)
        found: list[Finding] = []
        for number in served:
            findings = await self._check(number)
            found += [dataclasses.replace(finding, text=f"of {number}: {finding.text}") for finding in findings]
        return found

    async def _check(self, number: str) -> Sequence[Finding]:
        async with self.database.reading() as connection:
            settings = await application_settings.find_settings(connection, number)
            authorities = await certificates.find_certificate(connection, number, certificates.WEBHOOK_CA)
            try:
                secrets = await WebhookSecrets(number, self.webhook_secret, self._safe).find(connection)
            except UnreadableSecret as failure:
                return [error(self.name, str(failure), "set the settings key of the Coreapps here")]
        keys = [entry.key for entry in webhook_secrets.in_force(secrets, int(time.time() * 1000))]
        url = webhook_url.opened(self._safe, number, settings).webhooks.url
        if settings.webhooks.url and not url:
            return [error(self.name, "its URL cannot be decrypted", "set the settings key of the Coreapps here")]
        webhook = WebhookCheck(
            url,
            self.outgoing,
            authorities=authorities or b"",
            revocations=self.revocations,
            keys=keys,
            post=self.post,
        )
        return await webhook.run()
