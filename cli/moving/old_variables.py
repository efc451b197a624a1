"""Environment variables and containers of an old deployment."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from cli.known_variables import SECRETS, SETTINGS
from cli.moving.compose_file import ComposeService
from cli.moving.findings import OldPart, kept, refused, to_set, unused

VENDOR = "docker.whatsapp.biz/"
_TABLES = tomllib.loads((Path(__file__).parent / "variables.toml").read_text(encoding="utf-8"))
# Remarks by name, unless `_of_value` depends on the value.
KEPT: Mapping[str, str] = _TABLES["kept"]
UNUSED: Mapping[str, str] = _TABLES["unused"]
MASTER: str = _TABLES["master"]
_PROCESSES = {"web": "`tidings webapp`", "coreapp": "`tidings coreapp`, with a `tidings network`"}


def describe(variables: Mapping[str, str]) -> Iterator[OldPart]:
    """Yield each variable. No part contains a value, except that of WA_DB_ENGINE."""
    for name, value in variables.items():
        yield _of_value(name, value) or _of_name(name)


def _of_value(name: str, value: str) -> OldPart | None:
    if "$" in value:
        # Compose takes it from its own environment.
        return None
    if name == "WA_DB_ENGINE":
        if value == "MYSQL":
            return kept(name, "MYSQL, on MySQL 8 or MariaDB")
        if value == "PGSQL":
            return refused(name, "PostgreSQL is not supported: use MYSQL, or SQLITE for one machine")
        return refused(name, "it is neither MYSQL nor SQLITE")
    if name == "WA_API_KEY" and value and not 12 <= len(value) <= 128:
        return refused(name, "it does not have 12 to 128 characters")
    if name == "WA_WEB_JWT_CRYPTO_KEY" and len(value) < 16:
        return refused(name, "it is shorter than 16 characters")
    return None


def _of_name(name: str) -> OldPart:
    if name in KEPT:
        return kept(name, KEPT[name])
    if name in UNUSED:
        return unused(name, UNUSED[name])
    if name in SETTINGS or name in SECRETS:
        return kept(name, "it is a variable of Tidings")
    return unused(name, "Tidings does not read it")


def describe_services(services: Mapping[str, ComposeService]) -> Iterator[OldPart]:
    """Yield each container with its variables. Those of other images than the vendor's are left out."""
    for name, service in services.items():
        yield _container(f"container {name}", service)
        if service.image.startswith(VENDOR):
            yield from describe(service.variables)


def _container(name: str, service: ComposeService) -> OldPart:
    image = service.image.partition("@")[0]
    program = image.rpartition("/")[2].partition(":")[0]
    if image.startswith(VENDOR) and program in _PROCESSES:
        if MASTER in service.variables:
            return unused(name, UNUSED[MASTER])
        return to_set(name, f"{_PROCESSES[program]} (docs/deploy/compose.md)")
    if program.startswith("postgres"):
        return refused(name, "PostgreSQL is not supported: use MySQL 8 or MariaDB")
    if program in ("mysql", "mariadb"):
        return kept(name, "with empty schemas, from MySQL 8 or MariaDB")
    if program in ("prometheus", "grafana"):
        return to_set(name, "docs/operations.md, Prometheus and Grafana")
    return unused(name, "it is no part of Tidings")
