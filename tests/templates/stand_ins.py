"""Resource types that moto's CloudFormation does not create: their names and attributes, and nothing behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import boto3
from moto.cloudformation import parsing
from moto.core.common_models import CloudFormationModel

# moto stores its instances without those of Aurora.
INSTANCE_OF_CLUSTER = "Tidings::RDS::InstanceOfCluster"
# Attributes that our templates refer to.
ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    INSTANCE_OF_CLUSTER: {},
    "AWS::CloudWatch::Alarm": {},
    "AWS::ECS::CapacityProvider": {},
    "AWS::ECS::ClusterCapacityProviderAssociations": {},
    "AWS::ElastiCache::ReplicationGroup": {"PrimaryEndPoint.Address": "redis.example"},
    "AWS::ElastiCache::SubnetGroup": {},
    "AWS::Logs::MetricFilter": {},
    "AWS::RDS::DBCluster": {"Endpoint.Address": "aurora.example"},
    "AWS::RDS::DBClusterParameterGroup": {},
    "AWS::SNS::Subscription": {},
    "AWS::SecretsManager::Secret": {},
    "AWS::ServiceDiscovery::PrivateDnsNamespace": {},
    "AWS::ServiceDiscovery::Service": {"Arn": "arn:aws:servicediscovery:eu-central-1:123456789012:service/srv-1"},
}


class StandIn(CloudFormationModel):
    """Resource that has only a name."""

    kind = ""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def physical_resource_id(self) -> str:
        return self.name

    @staticmethod
    def cloudformation_name_type() -> str:
        return ""

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        return attr in ATTRIBUTES[cls.kind]

    def get_cfn_attribute(self, attribute_name: str) -> str:
        return ATTRIBUTES[self.kind][attribute_name]

    @classmethod
    def create_from_cloudformation_json(cls, resource_name: str, *others: Any, **more: Any) -> StandIn:
        is_secret = cls.kind == "AWS::SecretsManager::Secret"
        return cls(
            f"arn:aws:secretsmanager:eu-central-1:123456789012:secret:{resource_name}" if is_secret else resource_name
        )


class NestedStack(StandIn):
    """Nested stack, by the name of its resource. moto's own has no outputs that the outer stack could use."""

    # Loads the template of a file in the form that moto can create.
    load: Callable[[str], str]

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        return attr.startswith("Outputs.")

    def get_cfn_attribute(self, attribute_name: str) -> str:
        (stack,) = boto3.client("cloudformation").describe_stacks(StackName=self.name)["Stacks"]
        outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
        return str(outputs[attribute_name.removeprefix("Outputs.")])

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Mapping[str, Any], *others: Any, LogicalId: str, **more: Any
    ) -> StandIn:
        properties = cloudformation_json["Properties"]
        name = LogicalId.lower()
        boto3.client("cloudformation").create_stack(
            StackName=name,
            TemplateBody=cls.load(properties["TemplateURL"].rpartition("/")[2]),
            Parameters=[
                {"ParameterKey": key, "ParameterValue": str(value)} for key, value in properties["Parameters"].items()
            ],
            Capabilities=["CAPABILITY_IAM"],
        )
        return cls(name)


def register(load: Callable[[str], str]) -> None:
    """Make moto create these resources, unless it supports them natively.

    load: returns the template of a file that a stack names.
    """
    known = parsing.get_model_map()
    known["AWS::CloudFormation::Stack"] = type("Nested", (NestedStack,), {"load": staticmethod(load)})
    for kind in ATTRIBUTES:
        known.setdefault(kind, type("StandIn", (StandIn,), {"kind": kind, "__module__": __name__}))
