"""Types of resources that moto's CloudFormation does not make: their names and attributes, and nothing behind them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moto.cloudformation import parsing
from moto.core.common_models import CloudFormationModel

# Its instances have no place for those of Aurora.
INSTANCE_OF_CLUSTER = "Tidings::RDS::InstanceOfCluster"
# Attributes that our templates ask for.
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
    """A resource that has a name."""

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


def register() -> None:
    """Have moto make these, unless it has learnt to by itself."""
    known = parsing.get_model_map()
    for kind in ATTRIBUTES:
        known.setdefault(kind, type("StandIn", (StandIn,), {"kind": kind, "__module__": __name__}))
