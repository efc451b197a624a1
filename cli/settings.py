"""Settings of the commands that are no processes of an installation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from tidings.runtime import env, process_secrets, settings
from tidings.runtime.process_secrets import CoreappSecrets
from tidings.runtime.settings import DatabaseSettings


class TableSettings(settings.InstallationSettings):
    """Where the tables are."""

    business: Annotated[DatabaseSettings, settings.database("business")] = env.MADE
    network: Annotated[DatabaseSettings, settings.database("network")] = env.MADE

    @property
    def families(self) -> Mapping[str, DatabaseSettings]:
        return {"business": self.business, "network": self.network}


class BusinessSettings(TableSettings):
    """With the business number."""

    account: settings.BusinessNumber = settings.BUSINESS_NUMBER


class CoreappSettings(BusinessSettings):
    """With the secrets of a Coreapp, which are made when they are not there."""

    secrets: Annotated[CoreappSecrets, process_secrets.secrets_of(CoreappSecrets)] = env.MADE


class UpSettings(CoreappSettings):
    """With the API's address."""

    api_address: env.Address = env.variable("TIDINGS_API_ADDRESS", "127.0.0.1:9090")
