"""Manifests for Kubernetes, validated against its own schemas."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.templates import kubernetes_schemas

FOLDER = Path(__file__).parents[2] / "docker" / "kubernetes"
# Kinds that only kubectl reads. The schemas of a cluster do not include them.
NOT_OF_A_CLUSTER = {"Kustomization"}


def secret() -> str:
    """Return the secret that the script prints."""
    environment = {**os.environ, "BUSINESS_DATABASE_PASSWORD": "of the database"}
    return subprocess.run([FOLDER / "secrets.sh"], env=environment, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def resources() -> list[dict[str, Any]]:
    texts = [path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.yaml"))]
    found = [one for text in [*texts, secret()] for one in yaml.safe_load_all(text)]
    return [one for one in found if one["kind"] not in NOT_OF_A_CLUSTER]


@pytest.fixture
def schemas(tmp_path: Path, resources: list[dict[str, Any]]) -> Path:
    kubernetes_schemas.write([kubernetes_schemas.file_of(one) for one in resources], tmp_path)
    return tmp_path


def check(resource: dict[str, Any], schemas: Path) -> None:
    schema = yaml.safe_load((schemas / kubernetes_schemas.file_of(resource)).read_text())
    jsonschema.Draft4Validator(schema).validate(resource)


def test_every_resource_matches_its_schema(resources: list[dict[str, Any]], schemas: Path) -> None:
    assert len(resources) > 15
    for resource in resources:
        check(resource, schemas)


def test_an_unknown_field_is_rejected(resources: list[dict[str, Any]], schemas: Path) -> None:
    deployment = next(one for one in resources if one["kind"] == "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["redinessProbe"] = {}
    with pytest.raises(jsonschema.ValidationError, match="redinessProbe"):
        check(deployment, schemas)


def test_kubeconform_reports_no_error(schemas: Path, tmp_path: Path) -> None:
    program = kubernetes_schemas.kubeconform()
    if program is None:
        pytest.skip("neither kubeconform nor Go is here; the same schemas were applied above")
    (tmp_path / "secret.yaml").write_text(secret())
    where = f"{schemas}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    command = [program, "-strict", "-summary", "-skip", ",".join(NOT_OF_A_CLUSTER), "-schema-location", where]
    files = [*map(str, sorted(FOLDER.glob("*.yaml"))), str(tmp_path / "secret.yaml")]
    done = subprocess.run([*command, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "Invalid: 0, Errors: 0" in done.stdout
