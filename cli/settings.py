"""Settings of the commands that are not processes of an installation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from tidings.config import env
from tidings.installation import network_access, settings
from tidings.installation.settings import DatabaseSettings
from tidings.net import exposure
from tidings.secrets import process_secrets
from tidings.secrets.api_key import API_KEY, OptionalKey
from tidings.secrets.process_secrets import CoreappSecrets


class DirectorySettings(env.Variables):
    """Data directory, which reading these settings does not create."""

    data_dir: Annotated[Path, env.text(env.parse_path)] = env.variable("TIDINGS_DATA_DIR", "data")


class StoredSettings(DirectorySettings):
    """Data directory and the database of the business."""

    business: Annotated[DatabaseSettings, settings.database("business")] = env.COMPUTED

    @property
    def is_missing(self) -> bool:
        """Whether the database is a SQLite file in the data directory, and there is no such directory."""
        is_inside = self.business.url.startswith(f"sqlite+aiosqlite:///{self.data_dir}/")
        return is_inside and not self.data_dir.exists()


class TableSettings(settings.InstallationSettings):
    """Databases of the business and of the network."""

    business: Annotated[DatabaseSettings, settings.database("business")] = env.COMPUTED
    network: Annotated[DatabaseSettings, settings.database("network")] = env.COMPUTED

    @property
    def families(self) -> Mapping[str, DatabaseSettings]:
        return {"business": self.business, "network": self.network}


class AdministratorSettings(settings.InstallationSettings):
    """Database server and the administrator that creates its users."""

    server: Annotated[DatabaseSettings, settings.database("business")] = env.COMPUTED


class NumberSettings(TableSettings):
    """Databases and the business number."""

    account: settings.BusinessNumber = settings.BUSINESS_NUMBER


class CoreappSettings(NumberSettings):
    """Databases, business number and the secrets of a Coreapp. Reading the settings creates missing secrets."""

    secrets: Annotated[CoreappSecrets, process_secrets.secrets_of(CoreappSecrets)] = env.COMPUTED


class LeaseSettings(env.Variables):
    """Lease settings that all Coreapps share."""

    # Seconds without a heartbeat after which a shard has no owner.
    lease_seconds: Annotated[float, env.number(1.0, 3600.0)] = env.variable("TIDINGS_LEASE_SECONDS", 30.0)


class QueueSettings(CoreappSettings, LeaseSettings):
    """Settings of a Coreapp and of the leases of shards."""


class TopSettings(env.Variables):
    """Addresses of the metrics of this environment's processes."""

    api_address: env.Address = env.variable("TIDINGS_API_ADDRESS", "127.0.0.1:9090")
    api_tls: Annotated[bool, env.computed(lambda data: not env.is_loopback(data["api_address"][0]), env.parse_flag)] = (
        env.variable("TIDINGS_API_TLS", None)
    )
    coreapp_metrics: env.Address = env.variable("TIDINGS_COREAPP_METRICS_ADDRESS", "127.0.0.1:6253")
    network_address: env.Address = env.variable("TIDINGS_NETWORK_HTTP_ADDRESS", "127.0.0.1:9095")
    # `tidings up` needs only the address, from which it makes the URL for its other processes.
    network_http: Annotated[str, env.computed(lambda data: network_access.url_at(data["network_address"]), str)] = (
        env.variable("TIDINGS_NETWORK_HTTP_URL", None)
    )
    plaintext: exposure.Allowed = exposure.ALLOWED
    api_key: OptionalKey = API_KEY
    tls_files: exposure.InstallationFiles = env.COMPUTED


class PageSettings(env.Variables):
    """Whether `tidings up` serves handsets as pages."""

    handset_web: env.Flag = env.variable("TIDINGS_HANDSET_WEB", True)


class UpSettings(CoreappSettings, PageSettings):
    """Settings of a Coreapp, the API's address, and whether handsets are served as pages."""

    api_address: env.Address = env.variable("TIDINGS_API_ADDRESS", "127.0.0.1:9090")
