"""Compose files: they follow the Compose Specification, and everything that they refer to exists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cli.role_files import ROLES

ROOT = Path(__file__).parents[1]
FILES = (ROOT / "docker" / "docker-compose.yml", ROOT / "docker" / "docker-compose.multi.yml")
SCHEMA = json.loads((ROOT / "tests" / "data" / "compose" / "compose-spec.json").read_text())
OURS = "localhost/tidings"


@pytest.fixture(params=FILES, ids=lambda path: path.name)
def compose(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(request.param.read_text())
    return found


def ours(compose: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, service in compose["services"].items():
        if OURS in service["image"]:
            yield name, service


def test_each_compose_file_matches_the_compose_schema(compose: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(compose)


def test_the_schema_rejects_an_unknown_key(compose: dict[str, Any]) -> None:
    compose["services"]["webapp-1"] = {"imagine": "x"}
    with pytest.raises(jsonschema.ValidationError, match="imagine"):
        jsonschema.Draft202012Validator(SCHEMA).validate(compose)


def test_our_containers_are_read_only_and_have_no_capabilities(compose: dict[str, Any]) -> None:
    services = dict(ours(compose))
    assert len(services) >= 6
    for name, service in services.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name


# Capabilities that the start-up script of a database's image needs before it switches to the server's user.
CAPABILITIES = {"database": ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"]}


def test_other_containers_are_read_only_and_have_only_needed_capabilities(compose: dict[str, Any]) -> None:
    others = {name: service for name, service in compose["services"].items() if OURS not in service["image"]}
    assert others.keys() >= {"database", "prometheus", "grafana"}
    for name, service in others.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service.get("cap_add", []) == CAPABILITIES.get(name, []), name
        assert service["security_opt"] == ["no-new-privileges:true"], name


def test_the_coreapp_service_can_be_scaled() -> None:
    """With `--scale`: no setting belongs to one of them, and Webapps know the name in their certificates."""
    services = yaml.safe_load(FILES[0].read_text())["services"]
    coreapp = services["coreapp"]
    assert not {"container_name", "hostname", "ports"} & coreapp.keys()
    assert not {"COREAPP_HOSTNAME", "TIDINGS_COREAPP_ADVERTISED_HOST"} & coreapp["environment"].keys()
    assert services["webapp"]["environment"]["TIDINGS_COREAPP_TLS_NAME"] == "coreapp"
    assert "coreapp" in services["provision"]["command"], "the certificate has the role's name"


def test_each_role_mounts_only_its_own_secrets_volume(compose: dict[str, Any]) -> None:
    """Each role mounts only its own volume of secrets. Only provisioning mounts the volume with all of them."""
    for name, service in compose["services"].items():
        mounted = {volume.partition(":")[0] for volume in service.get("volumes", ())}
        if name == "provision":
            assert mounted == {"installation"} | {volume for volume in mounted if volume in ROLES}
            assert service["network_mode"] == "none"
        else:
            role = re.sub(r"-\d$", "", name)
            assert mounted & {"installation", *ROLES} == {role}, name


def test_every_role_with_secrets_is_provisioned(compose: dict[str, Any]) -> None:
    provision = compose["services"]["provision"]
    named = {word.partition("=")[0] for word in provision["command"]} & set(ROLES)
    volumes = {volume.partition(":")[0] for volume in provision["volumes"]} - {"installation"}
    roles = {re.sub(r"-\d$", "", name) for name in compose["services"]} - {"provision"}
    assert named == volumes == roles


def test_compose_files_contain_no_secret_and_no_default_for_one(compose: dict[str, Any]) -> None:
    secret = re.compile(r"PASSWORD|SECRET|_KEY$|API_KEY|TOKEN")
    for name, service in compose["services"].items():
        for variable, value in service.get("environment", {}).items():
            if secret.search(variable.removesuffix("_FILE")) and not variable.startswith("TIDINGS_TLS"):
                is_path = str(value).startswith(("/var/lib/tidings/", "/run/", "/docker-entrypoint-initdb.d/"))
                assert is_path or value == f"${{{variable}:-}}", (name, variable)


def test_every_path_mounted_from_the_folder_exists(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for volume in service.get("volumes", ()):
            if volume.startswith("./"):
                assert (ROOT / "docker" / volume.partition(":")[0]).exists(), volume


def test_only_the_api_port_is_published_beyond_loopback(compose: dict[str, Any]) -> None:
    published = [port for service in compose["services"].values() for port in service.get("ports", ())]
    assert [port for port in published if "127.0.0.1" not in port] == ["${TIDINGS_API_PORT:-9090}:9090"]


def test_the_proxy_limits_one_address_to_part_of_its_connections() -> None:
    proxy = yaml.safe_load(FILES[1].read_text())["services"]["proxy"]
    text = (ROOT / "docker" / "haproxy" / "haproxy.cfg").read_text()
    (name, given), *others = proxy["environment"].items()
    each = int(given.removesuffix("}").rpartition(":-")[2])
    assert not others
    frontends = [part for part in re.split(r"^(?=\w)", text, flags=re.MULTILINE) if part.startswith("frontend")]
    assert len(frontends) == 3
    for frontend in frontends:
        is_http = "mode http\n" in frontend
        # Where HAProxy speaks HTTP, the next 500 connections get 503.
        more, converter = (500, ",sub(500)") if is_http else (0, "")
        assert f'reject if {{ sc0_conn_cur{converter} gt "${{{name}-{each}}}" }}' in frontend
        assert ("deny deny_status 503 hdr Retry-After 1 if" in frontend) == is_http
        most = int(re.findall(r"^ +maxconn (\d+)$", frontend, re.MULTILINE)[0])
        assert 500 <= each + more <= most / 2


def test_dockerignore_admits_exactly_the_copied_folders_and_no_secret() -> None:
    """.dockerignore admits every folder that the Dockerfile copies, and no file that could contain a secret."""
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text()
    copied = {word for line in re.findall(r"^COPY ([^-].*) \S+$", dockerfile, re.M) for word in line.split()}
    assert ignored[1] == "*"
    assert copied == allowed


@pytest.mark.parametrize("name", ["docker-compose", "docker-compose.multi"])
def test_the_s3_override_sets_a_bucket_for_every_process_that_stores_files(name: str) -> None:
    override = yaml.safe_load((ROOT / "docker" / f"{name}.s3.yml").read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(override)
    services = yaml.safe_load((ROOT / "docker" / f"{name}.yml").read_text())["services"]
    expected = {
        service: "TIDINGS_NETWORK_BLOB_S3_" if service.startswith("network") else "TIDINGS_MEDIA_S3_"
        for service in services
        if re.fullmatch(r"(webapp|coreapp|network)(-\d)?", service)
    }
    assert set(override["services"]) == set(expected)
    for service, prefix in expected.items():
        assert all(variable.startswith(prefix) for variable in override["services"][service]["environment"])
