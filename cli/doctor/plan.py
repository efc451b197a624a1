"""Selection of the checks for the processes that run in this environment."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cli import installation, process_records
from cli.coreapp_client import CoreappClient, calls_of
from cli.doctor import certificates, machine
from cli.doctor.business import KeysCheck, NumberCheck, StoredWebhookCheck
from cli.doctor.configuration import (
    ConfigurationCheck,
    ExaminedSettings,
    PrivateFilesCheck,
    RunningProcessCheck,
    SecretsCheck,
    UnreadVariablesCheck,
    examine,
)
from cli.doctor.coreapps import CoreappLinksCheck, ReachedCoreappsCheck, ShardOwnersCheck
from cli.doctor.database import (
    DatabaseClockCheck,
    DatabaseReachableCheck,
    DurabilityCheck,
    TableRevisionCheck,
    WriteLatencyCheck,
)
from cli.doctor.file_stores import BucketCheck, RecordedStoreCheck
from cli.doctor.findings import CheckGroup, DoctorCheck
from cli.doctor.network import NetworkHttpCheck, NetworkKeyCheck, NetworkTcpCheck
from cli.doctor.redis import RedisServerCheck
from cli.doctor.upstream import UpstreamCheck
from cli.settings import DirectorySettings, LeaseSettings
from tidings.config.env import SettingsError
from tidings.installation import network_access
from tidings.net.tls import TlsFiles
from tidings.objects import identity
from tidings.objects.identity import BLOBS, MEDIA
from tidings.objects.s3_settings import S3Settings
from tidings.objects.store import FileStore
from tidings.objects.stores import open_store
from tidings.secrets import secret_sources
from tidings.storage.business import key_checks
from tidings.storage.database import Database

REDIS_URL = "TIDINGS_REDIS_URL"


@dataclasses.dataclass(frozen=True, slots=True)
class DoctorOptions:
    """Options of the command."""

    processes: Sequence[str]  # processes that run in this environment
    quick: bool = False  # skip measurements that write
    post: bool = False  # POST an empty object to the webhook


class CheckPlan:
    """Checks of an environment, with the databases and file stores to close afterwards."""

    def __init__(self, variables: Mapping[str, str], wanted: DoctorOptions) -> None:
        self._variables = variables
        self._wanted = wanted
        self._databases = contextlib.AsyncExitStack()
        self._data_dir = DirectorySettings.read(variables).data_dir
        records = {name: process_records.find(name, self._data_dir) for name in wanted.processes}
        self._running = {name: record for name, record in records.items() if record is not None}
        self._stopped = {**variables, **installation.loopback_variables_in(self._data_dir, variables)}

    def _environment(self, process: str) -> Mapping[str, str]:
        """Return the variables of the process if it runs on this host, else those that it would start with."""
        record = self._running.get(process)
        return self._stopped if record is None else record.environment(self._variables)

    async def close(self) -> None:
        """Close the databases and file stores."""
        await self._databases.aclose()

    def groups(self) -> Sequence[CheckGroup]:
        """Return the checks in order of dependency. Raises `UnusableCertificate`."""
        examined = [examine(process, self._environment(process)) for process in self._wanted.processes]
        usable = {each.process: each for each in examined if each.settings is not None}
        # A running process would start again with these variables.
        restarted = [
            examine(name, {**record.environment(self._variables), **self._variables})
            for name, record in self._running.items()
        ]
        groups = [
            CheckGroup(ConfigurationCheck([*examined, *restarted])),
            CheckGroup(UnreadVariablesCheck(self._variables)),
        ]
        groups += [CheckGroup(RunningProcessCheck(record, self._variables)) for record in self._running.values()]
        groups += [
            CheckGroup(SecretsCheck(name, self._environment(name), self._data_dir)) for name in self._wanted.processes
        ]
        files = _tls_files(usable)
        keys = [used.key for used in files.values() if used.key]
        # Where settings cannot be read, the default is assumed.
        has_databases = not usable or any(each.settings.database.engine == "sqlite" for each in usable.values())
        private = PrivateFilesCheck(self._data_dir, keys, has_databases=has_databases)
        groups += [CheckGroup(private), CheckGroup(certificates.CertificateFilesCheck(files))]
        groups += self._machine(usable)
        if "coreapp" in usable:
            groups.append(self._network(usable["coreapp"]))
        if "network" in usable:
            where = usable["network"].settings.blobs
            blobs = self._store(where.directory, where.bucket)
            checks = [
                lambda database: RecordedStoreCheck(identity.of_blobs(database, blobs), blobs),
                lambda _: BucketCheck(BLOBS, blobs, keeps=where.ttl),
            ]
            groups.append(self._database(usable["network"].settings.database, "network", checks))
        if self._environment("network").get(REDIS_URL):
            groups.append(CheckGroup(self._redis()))
        business = usable.get("coreapp") or usable.get("webapp")
        if business is not None:
            groups.append(self._database(business.settings.database, "business", self._of_business(business)))
        webapp = usable.get("webapp")
        if webapp is not None and webapp.settings.tls:
            groups.append(CheckGroup(certificates.ApiCertificateCheck(*_dialled(webapp.settings.address))))
        return groups

    def _database(self, settings: Any, family: str, checks: Sequence[Any]) -> CheckGroup:
        database = Database(settings, family)
        self._databases.push_async_callback(database.close)
        about: list[DoctorCheck] = [DurabilityCheck(database), DatabaseClockCheck(database)]
        if not self._wanted.quick:
            about.append(WriteLatencyCheck(database))
        return CheckGroup(
            DatabaseReachableCheck(database),
            [*about, TableRevisionCheck(database), *(make(database) for make in checks)],
        )

    def _store(self, directory: Path, bucket: S3Settings | None) -> FileStore:
        """Open a file store, which `close` closes. Raises `SettingsError`."""
        store = open_store(directory, bucket)
        self._databases.push_async_callback(store.close)
        return store

    def _of_business(self, examined: ExaminedSettings) -> Sequence[Any]:
        """Return functions that create the checks of the business's database."""
        settings = examined.settings
        media = self._store(settings.media_dir, settings.media_bucket)
        lease = LeaseSettings.part(self._environment(examined.process)).lease_seconds
        makers = [
            lambda database: NumberCheck(database, settings.account, getattr(settings, "number_hosts", {})),
            lambda database: ShardOwnersCheck(database, lease_seconds=lease),
            ReachedCoreappsCheck,
            lambda database: RecordedStoreCheck(identity.of_media(database, media), media),
            lambda _: BucketCheck(MEDIA, media, keeps=None),
        ]
        if not examined.has_secrets:
            return makers
        secrets = settings.secrets
        sealed = {key_checks.SETTINGS: secrets.settings_key}
        webhook_secret, revocations = "", None
        if examined.process == "coreapp":
            sealed[key_checks.MASTER] = secrets.master_key
            webhook_secret = secrets.webhook_secret
            revocations = settings.webhook_revocations
        links = CoreappClient(secrets.link_key, calls_of(settings))
        return [
            *makers,
            lambda database: KeysCheck(database, sealed),
            lambda database: CoreappLinksCheck(database, links),
            lambda database: UpstreamCheck(database, settings.outgoing_webhooks, secrets.settings_key),
            lambda database: StoredWebhookCheck(
                database,
                settings.account,
                settings.outgoing_webhooks,
                settings_key=secrets.settings_key,
                webhook_secret=webhook_secret,
                revocations=revocations,
                post=self._wanted.post,
            ),
        ]

    def _network(self, examined: ExaminedSettings) -> CheckGroup:
        settings = examined.settings
        context = network_access.make_context(settings.network_files, *settings.network_ways())
        host, port = settings.network_tcp
        rest: list[DoctorCheck] = [NetworkTcpCheck(host, port, context if settings.network_tcp_tls else None)]
        if examined.has_secrets:
            rest.append(NetworkKeyCheck(settings.network_http, settings.secrets.registration_key, context))
        return CheckGroup(NetworkHttpCheck(settings.network_http, context), rest)

    def _redis(self) -> RedisServerCheck:
        """Return the check of Redis. Raises `SettingsError` when a password cannot be read."""
        variables = self._environment("network")
        try:
            return RedisServerCheck(
                variables[REDIS_URL],
                password=secret_sources.read(variables, "TIDINGS_REDIS_PASSWORD"),
                sentinel_password=secret_sources.read(variables, "TIDINGS_REDIS_SENTINEL_PASSWORD"),
                authorities=variables.get("TIDINGS_REDIS_SSL_CA", ""),
            )
        except secret_sources.SecretUnavailable as failure:
            raise SettingsError(str(failure)) from None

    def _machine(self, usable: Mapping[str, ExaminedSettings]) -> list[CheckGroup]:
        reserves: dict[Path, int] = {self._data_dir: 0}
        connections: dict[str, int] = {}
        for name, each in usable.items():
            if name == "coreapp" or (name == "webapp" and each.settings.media_bucket is None):
                reserves[each.settings.media_dir] = each.settings.media_reserve
            if name == "webapp":
                connections[name] = each.settings.connections
            if name == "network":
                if each.settings.blobs.bucket is None:
                    reserves[each.settings.blobs.directory] = 0
                connections[name] = each.settings.limits.connections + each.settings.limits.http
        groups = [CheckGroup(machine.InterpreterCheck())]
        measured: set[int] = set()
        for directory, reserve in reserves.items():
            disk = machine.disk_of(directory)
            speed: list[DoctorCheck] = (
                [] if self._wanted.quick or disk in measured else [machine.DiskSpeedCheck(directory)]
            )
            measured.add(disk)
            groups.append(CheckGroup(machine.DiskSpaceCheck(directory, reserve=reserve), speed))
        return groups + [CheckGroup(machine.OpenFilesCheck(name, count)) for name, count in connections.items()]


def _tls_files(usable: Mapping[str, ExaminedSettings]) -> dict[str, TlsFiles]:
    """Return the files of certificates by their use."""
    found: dict[str, TlsFiles] = {}
    for name, each in usable.items():
        settings = each.settings
        uses = {"link": settings.tls_files, "database": settings.database.tls or TlsFiles()}
        if name == "network":
            uses |= {"network_http": settings.http_certificate, "network_tcp": settings.tcp_certificate}
        if name == "coreapp":
            uses["network"] = settings.network_files
        found |= {use: files for use, files in uses.items() if files.chain or files.authorities}
    return found


def _dialled(address: tuple[str, int]) -> tuple[str, int]:
    """Return host and port for connections from this machine."""
    host, port = address
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port  # noqa: S104
