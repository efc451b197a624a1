"""Templates, manifests and units refer to existing things: variables that processes read, described parameters."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
CLOUD = ROOT / "templates" / "cloudformation"
KUBERNETES = ROOT / "docker" / "kubernetes"
SYSTEMD = ROOT / "docker" / "systemd"
SOURCES = ("tidings", "webapp", "coreapp", "network", "cli")
VARIABLE = re.compile(r"\b(?:TIDINGS|WA|WACORE|COREAPP)_[A-Z0-9_]+")
# Parameters of the On-Premises API's template.
KNOWN = {
    "EnvType", "HAEnabled", "NumCoreappInstances", "VpcId",
    "SubnetIDs", "SubnetCount", "LBScheme", "LBSubnets",
    "InstanceType", "EBSVolumeSize", "KeyName", "WAEntContRegistry",
    "WAEntContTag", "ConfigOnDB", "DBEngineVersion", "DBHostname",
    "DBIOPS", "DBIdleConnectionTimeoutMS", "DBMultiAZEnabled", "DBStorageCapacity",
    "DBStorageType", "DBInstanceClass", "DBUser", "DBPassword",
    "DBPort", "PersistDBConn",
}  # fmt: skip


class _Loader(yaml.SafeLoader):
    """YAML loader that reads the short forms of CloudFormation's functions as their arguments."""


def _argument(loader: _Loader, tag: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return loader.construct_scalar(node)
    return loader.construct_sequence(node) if isinstance(node, yaml.SequenceNode) else loader.construct_mapping(node)


_Loader.add_multi_constructor("!", _argument)


def template(name: str) -> Any:
    return yaml.load((CLOUD / name).read_text(encoding="utf-8"), _Loader)


@pytest.fixture(scope="module")
def read() -> set[str]:
    """Return the variables that our sources name."""
    texts = [path.read_text(encoding="utf-8") for top in SOURCES for path in (ROOT / top).rglob("*.py")]
    return {name for text in texts for name in VARIABLE.findall(text)}


def named() -> Iterator[tuple[Path, str]]:
    for path in (*CLOUD.glob("*.yaml"), *KUBERNETES.glob("*.yaml"), *SYSTEMD.glob("*")):
        for name in VARIABLE.findall(path.read_text(encoding="utf-8")):
            yield path, name


def test_every_variable_is_one_that_a_process_reads(read: set[str]) -> None:
    found = set(named())
    assert len({name for _, name in found}) > 30
    assert {(path.name, name) for path, name in found if name not in read} == set()


def test_the_parameters_of_the_original_are_there() -> None:
    assert template("main.yaml")["Parameters"].keys() >= KNOWN


def test_every_parameter_is_described() -> None:
    page = (CLOUD / "README.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    described = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    parameters = template("main.yaml")["Parameters"]
    assert sorted(described) == sorted(parameters)
    assert all(parameter["Description"] for parameter in parameters.values())


@pytest.mark.parametrize("name", ["network", "database", "services", "monitoring"])
def test_each_template_gets_the_parameters_that_it_has_and_gives_the_outputs_that_are_asked_for(name: str) -> None:
    main = template("main.yaml")
    nested = template(f"{name}.yaml")
    given = main["Resources"][name.capitalize()]["Properties"]["Parameters"].keys()
    defaults = {key for key, entry in nested["Parameters"].items() if "Default" in entry}
    assert given <= nested["Parameters"].keys()
    assert nested["Parameters"].keys() - given <= defaults
    text = (CLOUD / "main.yaml").read_text(encoding="utf-8")
    asked = re.findall(rf"!GetAtt {name.capitalize()}\.Outputs\.(\w+)", text)
    assert set(asked) <= nested["Outputs"].keys()


def test_the_secret_of_the_manifests_has_every_key_that_they_ask_for() -> None:
    made = set(
        re.findall(r"^  ([a-z-]+): [\"$]", (KUBERNETES / "secrets.sh").read_text(encoding="utf-8"), re.MULTILINE)
    )
    texts = [path.read_text(encoding="utf-8") for path in KUBERNETES.glob("*.yaml")]
    reference = r"secretKeyRef: \{name: tidings, key: ([a-z-]+)(?:, optional: true)?\}"
    assert {key for text in texts for key in re.findall(reference, text)} == made


@pytest.mark.parametrize("password", ["plain", r"""a"b\c'd''$e`f: #g""", "'", "0123", "ünï\\n"])
def test_the_secret_has_passwords_as_they_were_given(password: str) -> None:
    environment = {**os.environ, "DATABASE_PASSWORD": password, "REDIS_PASSWORD": password[::-1]}
    made = subprocess.run([KUBERNETES / "secrets.sh"], env=environment, capture_output=True, text=True, check=True)
    secret = yaml.safe_load(made.stdout)["stringData"]
    assert (secret["database-password"], secret["redis-password"]) == (password, password[::-1])


def environments() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield the file, the process, and the variables that it is given, of every process that has metrics."""
    for name in ("docker-compose.yml", "docker-compose.multi.yml"):
        for service, content in yaml.safe_load((ROOT / "docker" / name).read_text(encoding="utf-8"))[
            "services"
        ].items():
            if content.get("command", [""])[0] in METRICS:
                yield name, re.sub(r"-\d$", "", service), content["environment"]
    shared = yaml.safe_load((KUBERNETES / "config.yaml").read_text(encoding="utf-8"))["data"]
    for role in METRICS:
        (deployment,) = (
            one
            for one in yaml.safe_load_all((KUBERNETES / f"{role}.yaml").read_text(encoding="utf-8"))
            if one["kind"] == "Deployment"
        )
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        yield "kubernetes", role, {**shared, **{one["name"]: str(one.get("value", "")) for one in container["env"]}}
    for role in METRICS:
        task = template("services.yaml")["Resources"][f"{role.capitalize()}Task"]["Properties"]
        container = next(one for one in task["ContainerDefinitions"] if one["Name"] == role)
        yield "cloudformation", role, {one["Name"]: str(one["Value"]) for one in container["Environment"]}


METRICS = ("webapp", "coreapp", "network")


def test_metrics_are_served_over_tls_alone() -> None:
    found = list(environments())
    assert len(found) == 3 + 7 + 3 + 3
    for file, role, variables in found:
        where = (file, role)
        assert "metrics" not in variables.get("TIDINGS_ALLOW_PLAINTEXT", ""), where
        if role == "webapp":
            assert variables["TIDINGS_API_ADDRESS"].startswith("0.0.0.0:"), where
            assert variables.get("TIDINGS_API_TLS", "1") == "1", where
        elif role == "network" and "TIDINGS_TLS_CERTIFICATE" not in variables:
            # The device API is unencrypted behind a load balancer, so metrics have a separate listener.
            assert variables["TIDINGS_NETWORK_METRICS_ADDRESS"].startswith("0.0.0.0:"), where


def test_prometheus_scrapes_over_tls_alone() -> None:
    text = (ROOT / "docker" / "monitoring" / "prometheus" / "prometheus.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["scrape_configs"]
    assert {job["job_name"]: job.get("scheme") for job in jobs} == dict.fromkeys(METRICS, "https")


def test_probes_and_annotations_of_the_manifests_speak_tls_where_the_process_does() -> None:
    for role in METRICS:
        text = (KUBERNETES / f"{role}.yaml").read_text(encoding="utf-8")
        assert 'prometheus.io/scheme: "https"' in text
        probes = re.findall(r"httpGet: \{.*\}", text)
        assert len(probes) == 3
        assert all(("scheme: HTTPS" in probe) == (role != "network") for probe in probes)
