"""Settings of the processes of an installation, by command. Importing this module imports every process's settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import coreapp.settings
import handset.settings
import network.settings
import webapp.settings
from tidings.installation.settings import ProcessSettings

# The processes that `tidings doctor` checks.
KINDS: Mapping[str, type[ProcessSettings]] = {
    "webapp": webapp.settings.Settings,
    "coreapp": coreapp.settings.Settings,
    "network": network.settings.Settings,
}
_RECIPIENTS: Mapping[str, type[ProcessSettings]] = {
    "robots": handset.settings.RobotsSettings,
    "handset": handset.settings.WebSettings,
}


def mistakes(environments: Mapping[str, Mapping[str, str]]) -> Sequence[str]:
    """Return the error texts of wrong settings, each once. Reading the settings creates missing secrets.

    environments: variables of each process, by command
    """
    kinds = {**KINDS, **_RECIPIENTS}
    found = [mistake for command, variables in environments.items() for mistake in kinds[command].mistakes(variables)]
    return list(dict.fromkeys(found))
