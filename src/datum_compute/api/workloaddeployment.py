"""WorkloadDeployment: the share of a Workload that one city runs."""

from __future__ import annotations

from datum_compute.api.codec import ApiStruct
from datum_compute.api.conditions import Conditions
from datum_compute.api.instance import InstanceTemplate
from datum_compute.api.meta import ApiObject, Column, KindInfo
from datum_compute.api.workload import CityCode, ReplicaCounts, ScaleSettings


class WorkloadRef(ApiStruct, frozen=True, kw_only=True):
    name: str
    uid: str


class WorkloadDeploymentSpec(ApiStruct, frozen=True, kw_only=True):
    workload_ref: WorkloadRef
    placement_name: str
    city_code: CityCode
    template: InstanceTemplate
    scale_settings: ScaleSettings


class ObservedSource(ApiStruct, frozen=True, kw_only=True):
    """Which generation of the project's deployment this status speaks about."""

    generation: int = 0
    template_hash: str = ""


class WorkloadDeploymentStatus(ReplicaCounts, frozen=True, kw_only=True):
    conditions: Conditions = []
    observed_generation: int = 0
    observed_source: ObservedSource = ObservedSource()


class WorkloadDeployment(ApiObject, frozen=True, kw_only=True):
    spec: WorkloadDeploymentSpec
    status: WorkloadDeploymentStatus = WorkloadDeploymentStatus()


KIND = KindInfo(
    group="compute.datumapis.com",
    version="v1alpha",
    kind="WorkloadDeployment",
    plural="workloaddeployments",
    model=WorkloadDeployment,
    short_names=("wd",),
    columns=(
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("City", ".spec.cityCode"),
        Column("Available", '.status.conditions[?(@.type=="Available")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Available")].reason'),
        Column("Replicas", ".status.replicas", "integer"),
        Column("Ready", ".status.readyReplicas", "integer"),
        Column("Desired", ".status.desiredReplicas", "integer"),
        Column("Up-to-date", ".status.updatedReplicas", "integer"),
    ),
)
