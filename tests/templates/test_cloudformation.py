"""The templates for AWS: what cfn-lint says of them, and stacks of them in moto."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import cfnlint.decode.cfn_yaml
import pytest
from moto import mock_aws

from tests.templates import stand_ins

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "templates" / "cloudformation"
TEMPLATES = sorted(FOLDER.glob("*.yaml"))
GIVEN = {
    "BusinessNumber": "15550000000",
    "TemplatesUrl": "https://templates.example/tidings",
    "WAEntContRegistry": "registry.example",
    "ImageId": "ami-12345678",
}
PLAIN = {"HAEnabled": "disabled", "EnvType": "dev"}
LARGE = {"SubnetCount": "4", "NumCoreappInstances": "4", "DBMultiAZEnabled": "enabled", "KeyName": "a-key"}
AURORA = {"DBEngine": "aurora-mysql", "DBEngineVersion": "8.0.mysql_aurora.3.08.2", "DBMultiAZEnabled": "enabled"}
AWAY = {
    "DBHostname": "db.example",
    "DBPassword": "of somebody",
    "PersistDBConn": "disabled",
    "AlarmEmail": "a@b.example",
}
# moto cannot give these to a database's instance when they are resources of the same stack.
MISSING = ("DBParameterGroupName", "DBClusterParameterGroupName")


def load(name: str) -> Any:
    """A template as plain values, with the long forms of functions."""
    return json.loads(json.dumps(cfnlint.decode.cfn_yaml.load(str(FOLDER / name))))


@dataclasses.dataclass
class Main:
    """`main.yaml` with parameters: what it hands to those beside it. moto has no outputs of stacks in stacks."""

    parameters: Mapping[str, str]
    template: Any
    outputs: dict[str, dict[str, str]]

    def stacks(self) -> Iterator[tuple[str, str, dict[str, str]]]:
        """Name, file and parameters of each, in the order in which they need each other."""
        for name in ("Network", "Database", "Services", "Monitoring"):
            resource = self.template["Resources"][name]
            if "Condition" not in resource or self._holds({"Condition": resource["Condition"]}):
                properties = resource["Properties"]
                file = self._value(properties["TemplateURL"]).rpartition("/")[2]
                yield name, file, {key: str(self._value(value)) for key, value in properties["Parameters"].items()}

    def _holds(self, condition: Any) -> bool:
        ((function, given),) = condition.items()
        if function == "Condition":
            return self._holds(self.template["Conditions"][given])
        if function == "Fn::Not":
            return not self._holds(given[0])
        if function == "Fn::And":
            return all(map(self._holds, given))
        assert function == "Fn::Equals"
        return bool(self._value(given[0]) == self._value(given[1]))

    def _value(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((function, given),) = value.items()
        if function == "Ref":
            return self.outputs[given]["Ref"] if given in self.outputs else self.parameters[given]
        if function == "Fn::GetAtt":
            stack, attribute = given if isinstance(given, list) else given.split(".", 1)
            return self.outputs[stack][attribute.removeprefix("Outputs.")]
        if function == "Fn::If":
            return self._value(given[1] if self._holds({"Condition": given[0]}) else given[2])
        if function == "Fn::Join":
            return self._value(given[1])
        assert function == "Fn::Sub"
        return given.replace("${TemplatesUrl}", self.parameters["TemplatesUrl"])


def in_moto(file: str) -> str:
    """A template as moto can make it."""
    template = load(file)
    for resource in template["Resources"].values():
        properties = resource.get("Properties", {})
        for name in MISSING:
            properties.pop(name, None)
        if "DBClusterIdentifier" in properties:
            resource["Type"] = stand_ins.INSTANCE_OF_CLUSTER
        if properties.get("Protocol") == "TLS":
            # It knows the listeners of application load balancers alone.
            properties["Protocol"] = "HTTPS"
    return json.dumps(template)


def install(parameters: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Make all stacks; their outputs, by name."""
    template = load("main.yaml")
    defaults = {name: str(entry.get("Default", "")) for name, entry in template["Parameters"].items()}
    assert parameters.keys() <= defaults.keys()
    cloud = boto3.client("cloudformation")
    ec2 = boto3.client("ec2")
    certificate = boto3.client("acm").request_certificate(DomainName="api.example")["CertificateArn"]
    main = Main({**defaults, **GIVEN, "CertificateArn": certificate, **parameters}, template, {})
    group = ec2.create_security_group(GroupName="processes", Description="processes")["GroupId"]
    main.outputs["ProcessSecurityGroup"] = {"Ref": group}
    main.outputs["DatabasePassword"] = {"Ref": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:given"}
    for name, file, given in main.stacks():
        assert given.keys() == load(file)["Parameters"].keys() - {"NetworkPrefix"}, "every parameter is handed on"
        entries = [{"ParameterKey": key, "ParameterValue": value} for key, value in given.items()]
        cloud.create_stack(
            StackName=name.lower(), TemplateBody=in_moto(file), Parameters=entries, Capabilities=["CAPABILITY_IAM"]
        )
        (stack,) = cloud.describe_stacks(StackName=name.lower())["Stacks"]
        assert stack["StackStatus"] == "CREATE_COMPLETE"
        main.outputs[name] = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
    return main.outputs


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {"ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x", "DEFAULT_REGION": "eu-central-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with mock_aws():
        stand_ins.register()
        yield


def test_cfn_lint_finds_nothing_and_is_asked_to_overlook_nothing() -> None:
    for path in TEMPLATES:
        assert "cfn-lint" not in path.read_text(encoding="utf-8"), "no exceptions"
    command = [sys.executable, "-m", "cfnlint", "--include-checks", "I", "--", *map(str, TEMPLATES)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=FOLDER)
    warned = [line for line in done.stdout.splitlines() if line[:1] in "EW"]
    assert warned == []


@pytest.mark.parametrize("given", [PLAIN, {}, LARGE, AURORA, AWAY], ids=["plain", "usual", "large", "aurora", "away"])
def test_stacks_can_be_made_of_the_templates(aws: None, given: dict[str, str]) -> None:
    outputs = install(given)
    assert outputs["Services"]["ApiUrl"].startswith("https://")
    subnets = boto3.client("ec2").describe_subnets(
        Filters=[{"Name": "vpc-id", "Values": [outputs["Network"]["VpcId"]]}]
    )
    assert len(subnets["Subnets"]) == 2 * int(given.get("SubnetCount", "2"))


def test_services_run_as_many_processes_as_were_asked_for(aws: None) -> None:
    install(LARGE)
    ecs = boto3.client("ecs")
    (cluster,) = ecs.list_clusters()["clusterArns"]
    services = ecs.describe_services(cluster=cluster, services=ecs.list_services(cluster=cluster)["serviceArns"])
    counts = {service["serviceName"].split("-")[1]: service["desiredCount"] for service in services["services"]}
    assert counts == {"WebappService": 2, "CoreappService": 5, "NetworkService": 2}, "four shards and a spare"


def test_containers_know_the_database_the_others_and_each_its_own_secrets(aws: None) -> None:
    outputs = install({})
    ecs = boto3.client("ecs")
    seen: dict[str, dict[str, str]] = {}
    for arn in ecs.list_task_definitions()["taskDefinitionArns"]:
        definition = ecs.describe_task_definition(taskDefinition=arn)["taskDefinition"]
        process = definition["containerDefinitions"][1]
        variables = {entry["name"]: entry["value"] for entry in process["environment"]}
        secrets = {entry["name"]: entry["valueFrom"] for entry in process["secrets"]}
        seen[process["name"]] = variables | secrets
        assert variables["WA_DB_HOSTNAME"] == outputs["Database"]["Hostname"]
        assert secrets["WA_DB_PASSWORD"] == outputs["Database"]["PasswordSecret"]
        assert process["image"] == "registry.example/tidings:latest"
        assert process["readonlyRootFilesystem"] is True
        assert process["user"] == "10001:10001"
    assert seen.keys() == {"webapp", "coreapp", "network"}
    assert seen["network"]["TIDINGS_REDIS_URL"] == "rediss://redis.example:6379"
    assert seen["coreapp"]["TIDINGS_SHARDS"] == "1"
    masters = [name for name, variables in seen.items() if "TIDINGS_MASTER_KEY" in variables]
    assert masters == ["coreapp"], "the Webapp, which strangers reach, has no master key"


def test_an_installation_without_spares_has_no_redis(aws: None) -> None:
    install(PLAIN)
    kinds = {
        resource["ResourceType"]
        for resource in boto3.client("cloudformation").list_stack_resources(StackName="services")[
            "StackResourceSummaries"
        ]
    }
    assert "AWS::ElastiCache::ReplicationGroup" not in kinds
    assert "AWS::ECS::Service" in kinds
