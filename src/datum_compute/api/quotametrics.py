"""What compute counts against a project's quota, and what every project gets.

Amounts are in base units: processors in thousandths, memory in MiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from datum_compute.api.meta.fields import ObjectReference

SERVICE, SERVICE_NAME = "compute", "compute.datumapis.com"
RESOURCE_MANAGER = "resourcemanager.miloapis.com"
PROJECT_KIND = "Project"
# Where a project keeps its grants and buckets.
QUOTA_NAMESPACE = "milo-system"


@dataclass(frozen=True, slots=True)
class QuotaMetric:
    """``factor`` base units make a display unit."""

    name: str
    title: str
    description: str
    type: Literal["Entity", "Allocation"]
    base_unit: str
    display_unit: str
    factor: int
    default_limit: int

    @property
    def resource_type(self) -> str:
        return f"{SERVICE_NAME}/{self.name}"


WORKLOADS = QuotaMetric(
    "workloads", "Workloads", "Workloads of the project.", "Entity", "1", "1", 1, 1000
)
INSTANCES = QuotaMetric(
    "instances", "Instances", "Instances in all cities.", "Entity", "1", "1", 1, 10
)
VCPUS = QuotaMetric(
    name="vcpus",
    title="Processors",
    description="Processors of all instances.",
    type="Allocation",
    base_unit="millicore",
    display_unit="vCPU",
    factor=1000,
    default_limit=40_000,
)
MEMORY = QuotaMetric(
    name="memory",
    title="Memory",
    description="Memory of all instances.",
    type="Allocation",
    base_unit="MiB",
    display_unit="GiB",
    factor=1024,
    default_limit=81_920,
)
METRICS = (WORKLOADS, INSTANCES, VCPUS, MEMORY)
# By resource type: what the grant of a new project allows, where nothing else is said.
DEFAULT_LIMITS: Mapping[str, int] = {
    metric.resource_type: metric.default_limit for metric in METRICS
}


def consumer_of(project: str) -> ObjectReference:
    """A project as the one whose quota is used."""
    return ObjectReference(api_group=RESOURCE_MANAGER, kind=PROJECT_KIND, name=project)
