"""Templates for AWS: the findings of cfn-lint, and stacks of them in moto."""

from __future__ import annotations

import functools
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import cfnlint.decode.cfn_yaml
import pytest
from moto import mock_aws
from moto.cloudformation import parsing
from moto.rds.models import DBInstance

from tests.templates import parameters, stand_ins

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "templates" / "cloudformation"
TEMPLATES = sorted(FOLDER.glob("*.yaml"))
GIVEN = {
    "BusinessNumber": "15550000000",
    "TemplatesUrl": "https://templates.example/tidings",
    "WAEntContRegistry": "registry.example",
    "ImageId": "image",
}
PLAIN = {"HAEnabled": "disabled", "EnvType": "dev"}
LARGE = {"SubnetCount": "4", "NumCoreappInstances": "4", "DBMultiAZEnabled": "enabled", "KeyName": "a-key"}
MARIADB = {"DBEngine": "mariadb", "DBEngineVersion": "10.11.14"}
AURORA = {"DBEngine": "aurora-mysql", "DBEngineVersion": "8.0.mysql_aurora.3.08.2", "DBMultiAZEnabled": "enabled"}
AWAY = {
    "DBHostname": "db.example",
    "DBPassword": "of somebody",
    "PersistDBConn": "disabled",
    "AlarmEmail": "a@b.example",
}
# Properties that moto cannot give to a database instance when they refer to resources of the same stack.
MISSING = ("DBParameterGroupName", "DBClusterParameterGroupName")


def load(name: str) -> Any:
    """Return a template as plain values, with the long forms of functions."""
    return json.loads(json.dumps(cfnlint.decode.cfn_yaml.load(str(FOLDER / name))))


def in_moto(file: str) -> str:
    """Return a template in the form that moto can create."""
    template = load(file)
    for resource in template["Resources"].values():
        properties = resource.get("Properties", {})
        for name in MISSING:
            properties.pop(name, None)
        if "DBClusterIdentifier" in properties:
            resource["Type"] = stand_ins.INSTANCE_OF_CLUSTER
        if properties.get("Protocol") == "TLS":
            # moto knows only the listeners of application load balancers.
            properties["Protocol"] = "HTTPS"
    return json.dumps(template)


def install(given: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Create a stack of `main.yaml` with its nested stacks, and return the outputs of all, by name."""
    main = load("main.yaml")
    for name, resource in main["Resources"].items():
        if resource["Type"] == "AWS::CloudFormation::Stack":
            file = resource["Properties"]["TemplateURL"]["Fn::Sub"].rpartition("/")[2]
            handed, taken = resource["Properties"]["Parameters"].keys(), load(file)["Parameters"].keys()
            assert handed == taken - {"NetworkPrefix"}, f"every parameter is handed on to {name}"
    # moto knows the ECS images by their AWS names in one region only.
    boto3.client("ssm").put_parameter(Name="image", Value="ami-12345678", Type="String")
    certificate = boto3.client("acm").request_certificate(DomainName="api.example")["CertificateArn"]
    values = parameters.check(main, {**GIVEN, "CertificateArn": certificate, **given})
    cloud = boto3.client("cloudformation")
    cloud.create_stack(
        StackName="main",
        TemplateBody=in_moto("main.yaml"),
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in values.items()],
        Capabilities=["CAPABILITY_IAM"],
    )
    made = {}
    for stack in cloud.describe_stacks()["Stacks"]:
        assert stack["StackStatus"] == "CREATE_COMPLETE"
        made[stack["StackName"]] = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
    return made


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {"ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x", "DEFAULT_REGION": "eu-central-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with mock_aws():
        stand_ins.register(in_moto)
        yield


def test_cfn_lint_reports_nothing_without_suppressions() -> None:
    for path in TEMPLATES:
        assert "cfn-lint" not in path.read_text(encoding="utf-8"), "no exceptions"
    command = [Path(sys.executable).with_name("cfn-lint"), "--include-checks", "I", "--", *TEMPLATES]
    done = subprocess.run(command, capture_output=True, text=True, cwd=FOLDER)
    warned = [line for line in done.stdout.splitlines() if line.startswith(("E", "W"))]
    assert (warned, done.stderr) == ([], "")
    # The exit status is a bit mask: 2 errors, 4 warnings, 8 hints.
    assert done.returncode in {0, 8}


@pytest.mark.parametrize(
    "given",
    [PLAIN, {}, LARGE, MARIADB, AURORA, AWAY],
    ids=["plain", "usual", "large", "mariadb", "aurora", "away"],
)
def test_stacks_can_be_created_from_the_templates(aws: None, given: dict[str, str]) -> None:
    outputs = install(given)
    assert outputs["services"]["ApiUrl"].startswith("https://")
    subnets = boto3.client("ec2").describe_subnets(
        Filters=[{"Name": "vpc-id", "Values": [outputs["network"]["VpcId"]]}]
    )
    assert len(subnets["Subnets"]) == 2 * int(given.get("SubnetCount", "2"))


def test_services_run_the_configured_number_of_processes(aws: None) -> None:
    install(LARGE)
    ecs = boto3.client("ecs")
    (cluster,) = ecs.list_clusters()["clusterArns"]
    services = ecs.describe_services(cluster=cluster, services=ecs.list_services(cluster=cluster)["serviceArns"])
    counts = {service["serviceName"].split("-")[1]: service["desiredCount"] for service in services["services"]}
    assert counts == {"WebappService": 2, "CoreappService": 5, "NetworkService": 2}, "four shards and a spare"


def test_containers_get_the_database_peer_addresses_and_only_their_own_secrets(aws: None) -> None:
    outputs = install({})
    ecs = boto3.client("ecs")
    seen: dict[str, dict[str, str]] = {}
    for arn in ecs.list_task_definitions()["taskDefinitionArns"]:
        definition = ecs.describe_task_definition(taskDefinition=arn)["taskDefinition"]
        certificates, migrate, process = definition["containerDefinitions"]
        variables = {entry["name"]: entry["value"] for entry in process["environment"]}
        secrets = {entry["name"]: entry["valueFrom"] for entry in process["secrets"]}
        seen[process["name"]] = variables | secrets
        assert variables["WA_DB_HOSTNAME"] == outputs["database"]["Hostname"]
        made_as = {entry["name"]: entry["valueFrom"] for entry in migrate["secrets"]}
        assert made_as["WA_DB_PASSWORD"] == outputs["database"]["PasswordSecret"]
        family = variables["WA_DB_USERNAME"].removeprefix("tidings_").upper()
        assert secrets["WA_DB_PASSWORD"] == made_as[f"TIDINGS_{family}_DB_PASSWORD"]
        assert [entry["name"] for entry in certificates["secrets"]] == ["TIDINGS_AUTHORITY_SEED"]
        assert process["image"] == "registry.example/tidings:latest"
        assert process["readonlyRootFilesystem"] is True
        assert process["user"] == "10001:10001"
    assert seen.keys() == {"webapp", "coreapp", "network"}
    assert seen["network"]["TIDINGS_REDIS_URL"] == "rediss://redis.example:6379"
    assert seen["coreapp"]["TIDINGS_SHARDS"] == "1"
    masters = [name for name, variables in seen.items() if "TIDINGS_MASTER_KEY" in variables]
    assert masters == ["coreapp"], "the Webapp, which unauthenticated clients reach, has no master key"


def test_an_installation_without_standbys_has_no_redis(aws: None) -> None:
    install(PLAIN)
    kinds = {
        resource["ResourceType"]
        for resource in boto3.client("cloudformation").list_stack_resources(StackName="services")[
            "StackResourceSummaries"
        ]
    }
    assert "AWS::ElastiCache::ReplicationGroup" not in kinds
    assert "AWS::ECS::Service" in kinds


# Published by AWS for MySQL and MariaDB (RDS user guide, "Amazon RDS DB instance storage"): GiB, IOPS and MiB/s.
# fmt: off
TAKEN = [
    # type, GiB, IOPS, MiB/s: the empty ones are left out.
    ("gp2", 20, "", ""), ("gp2", 65536, "", ""),
    ("gp3", 20, "", ""), ("gp3", 350, "", ""), ("gp3", 400, "", ""), ("gp3", 65536, "", ""),
    ("gp3", 400, 12000, ""), ("gp3", 400, 12000, 500), ("gp3", 400, 12000, 3000), ("gp3", 400, 16000, 4000),
    ("gp3", 400, 64000, 4000), ("gp3", 65536, 12000, ""),
    ("io1", 100, 1000, ""), ("io1", 100, 5000, ""), ("io1", 2000, 1000, ""), ("io1", 6000, 256000, ""),
    ("io2", 100, 1000, ""), ("io2", 100, 96000, ""), ("io2", 300, 256000, ""), ("io2", 65536, 48000, ""),
]
REFUSED = [
    ("gp2", 400, 3000, ""), ("gp2", 400, "", 500),
    ("gp3", 350, 3000, ""), ("gp3", 350, 12000, ""), ("gp3", 350, "", 500), ("gp3", 350, 12000, 500),
    ("gp3", 400, 3000, ""), ("gp3", 400, 10000, ""), ("gp3", 400, 80000, ""), ("gp3", 400, 12000, 4000),
    ("gp3", 400, "", 500), ("gp3", 10, "", ""), ("gp3", 400, 12000, 125),
    ("io1", 80, 1000, ""), ("io1", 400, "", ""), ("io1", 100, 6000, ""), ("io1", 2500, 1000, ""),
    ("io1", 400, 12000, 500), ("io1", 5000, 256000, ""), ("io1", 65536, 32000, ""),
    ("io2", 80, 1000, ""), ("io2", 400, "", ""), ("io2", 100, 128000, ""), ("io2", 250, 256000, ""),
    ("io2", 2500, 1000, ""), ("io2", 400, 12000, 500), ("standard", 400, "", ""),
]
# fmt: on


def storage(kind: str, size: object, operations: object, throughput: object) -> dict[str, str]:
    return {
        "DBStorageType": kind,
        "DBStorageCapacity": str(size),
        "DBIOPS": str(operations),
        "DBStorageThroughput": str(throughput),
    }


def is_taken(given: Mapping[str, str]) -> bool:
    try:
        parameters.check(load_once("main.yaml"), {**GIVEN, "CertificateArn": "arn:aws:acm:x", **given})
    except parameters.Refused:
        return False
    return True


load_once = functools.cache(load)


@pytest.mark.parametrize("given", TAKEN, ids=str)
def test_storage_that_rds_supports_is_accepted(given: tuple[Any, ...]) -> None:
    assert is_taken(storage(*given))


@pytest.mark.parametrize("given", REFUSED, ids=str)
def test_storage_that_rds_does_not_support_is_rejected_before_creation(given: tuple[Any, ...]) -> None:
    assert not is_taken(storage(*given))


def rds_takes(kind: str, size: int, operations: int | None, throughput: int | None) -> bool:
    """Return whether RDS accepts these values by its published rules."""
    if kind in {"io1", "io2"}:
        most = 50 if kind == "io1" else 1000
        return throughput is None and operations is not None and size >= 100 and 0.5 <= operations / size <= most
    if kind == "gp2" or size < 400:
        return operations is None and throughput is None
    if operations is None:
        # AWS accepts throughput alone on top of its default of 12,000 IOPS. Our template requires both, to check each.
        return throughput is None
    return 12_000 <= operations <= 64_000 and (throughput is None or throughput <= operations / 4)


def test_the_storage_rules_accept_exactly_what_rds_supports() -> None:
    choices = {name: load_once("main.yaml")["Parameters"][name]["AllowedValues"] for name in storage("", "", "", "")}
    wrong = []
    for kind, size, operations, throughput in itertools.product(*choices.values()):
        wanted = rds_takes(kind, size, *(int(each) if each else None for each in (operations, throughput)))
        if is_taken(storage(kind, size, operations, throughput)) != wanted:
            wrong.append((kind, size, operations, throughput))
    assert wrong == []


def test_storage_rules_apply_to_mariadb() -> None:
    assert is_taken({**storage("gp3", 400, 12000, ""), **MARIADB})
    assert not is_taken({**storage("gp3", 400, 3000, ""), **MARIADB})


def test_storage_rules_do_not_apply_to_aurora_or_an_existing_database() -> None:
    of_gp3 = storage("gp3", 400, 3000, "")
    assert is_taken({**of_gp3, **AURORA})
    assert is_taken({**of_gp3, **AWAY})


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (storage("gp3", 400, "", ""), (400, None, None)),
        (storage("gp3", 400, 16000, 1000), (400, 16000, 1000)),
        (storage("io1", 400, 10000, ""), (400, 10000, None)),
    ],
)
def test_the_database_instance_gets_only_the_given_storage_properties(
    aws: None, given: dict[str, str], wanted: tuple[int | None, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    created: list[dict[str, Any]] = []
    make = DBInstance.create_from_cloudformation_json

    def note(name: str, resource: dict[str, Any], *others: Any, **more: Any) -> Any:
        created.append(resource["Properties"])
        return make(name, resource, *others, **more)

    monkeypatch.setattr(DBInstance, "create_from_cloudformation_json", note)
    install(given)
    (properties,) = created
    found = tuple(properties.get(name) for name in ("AllocatedStorage", "Iops", "StorageThroughput"))
    assert [each and int(each) for each in found] == list(wanted)


def test_the_readme_lists_the_types_that_moto_does_not_simulate() -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`(AWS::\w+::\w+)`", readme.partition("names only or nothing")[2].partition(". So is")[0]))
    used = {resource["Type"] for path in TEMPLATES for resource in load(path.name)["Resources"].values()}
    # moto skips resources of types that it does not know.
    simulated = {kind for kind, model in parsing.get_model_map().items() if not issubclass(model, stand_ins.StandIn)}
    assert listed == used - simulated - {"AWS::CloudFormation::Stack"}


def test_buckets_belong_to_their_processes_and_require_tls(aws: None) -> None:
    install({"FileStorage": "s3"})
    ecs, s3 = boto3.client("ecs"), boto3.client("s3")
    seen: dict[str, str] = {}
    for arn in ecs.list_task_definitions()["taskDefinitionArns"]:
        process = ecs.describe_task_definition(taskDefinition=arn)["taskDefinition"]["containerDefinitions"][-1]
        variables = {entry["name"]: entry["value"] for entry in process["environment"]}
        (seen[process["name"]],) = [value for name, value in variables.items() if name.endswith("_S3_BUCKET")]
    assert seen["webapp"] == seen["coreapp"] != seen["network"]
    assert len(s3.list_buckets()["Buckets"]) == 2
    # moto creates buckets without their policies and lifecycle rules.
    resources = load("services.yaml")["Resources"]
    for name, days in (("MediaBucket", []), ("BlobBucket", [16])):
        rules = resources[name]["Properties"]["LifecycleConfiguration"]["Rules"]
        assert [rule["ExpirationInDays"] for rule in rules if "ExpirationInDays" in rule] == days
        assert any(rule.get("AbortIncompleteMultipartUpload") == {"DaysAfterInitiation": 1} for rule in rules)
        policy = resources[f"{name}Policy"]["Properties"]
        (statement,) = policy["PolicyDocument"]["Statement"]
        assert policy["Bucket"] == {"Ref": name}
        assert (statement["Effect"], statement["Action"], statement["Principal"]) == ("Deny", "s3:*", "*")
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
