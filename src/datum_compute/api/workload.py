"""Workload: a template and the cities it should run in. Written by users in their project."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from datum_compute.api.codec import ApiStruct
from datum_compute.api.conditions import Conditions
from datum_compute.api.instance import MAP_BY_NAME, DnsLabel, InstanceTemplate
from datum_compute.api.meta import ApiObject, Column, KindInfo

CityCode = Annotated[str, Meta(pattern="^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$", max_length=32)]


class ScaleSettings(ApiStruct, frozen=True, kw_only=True):
    min_replicas: Annotated[int, Meta(ge=1, le=1000)]
    instance_management_policy: Literal["OrderedReady"] = "OrderedReady"


class Placement(ApiStruct, frozen=True, kw_only=True):
    name: DnsLabel
    city_codes: Annotated[
        list[CityCode],
        Meta(min_length=1, extra_json_schema={"x-kubernetes-list-type": "set"}),
    ]
    scale_settings: ScaleSettings


class WorkloadSpec(ApiStruct, frozen=True, kw_only=True):
    template: InstanceTemplate
    placements: Annotated[list[Placement], MAP_BY_NAME, Meta(min_length=1)]


class ReplicaCounts(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """Said in full, because none is not the same as not known.

    replicas exist; updated carry the current template; current are updated and programmed.
    """

    replicas: int = 0
    current_replicas: int = 0
    updated_replicas: int = 0
    desired_replicas: int = 0
    ready_replicas: int = 0


class PlacementStatus(ReplicaCounts, frozen=True, kw_only=True):
    name: str
    conditions: Conditions = []


class WorkloadStatus(ReplicaCounts, frozen=True, kw_only=True):
    conditions: Conditions = []
    deployments: int = 0
    observed_generation: int = 0
    placements: Annotated[list[PlacementStatus], MAP_BY_NAME] = []


class Workload(ApiObject, frozen=True, kw_only=True):
    spec: WorkloadSpec
    status: WorkloadStatus = WorkloadStatus()


KIND = KindInfo(
    group="compute.datumapis.com",
    version="v1alpha",
    kind="Workload",
    plural="workloads",
    model=Workload,
    short_names=("wl",),
    columns=(
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Available", '.status.conditions[?(@.type=="Available")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Available")].reason'),
        Column("Deployments", ".status.deployments", "integer"),
        Column("Replicas", ".status.replicas", "integer"),
        Column("Ready", ".status.readyReplicas", "integer"),
        Column("Desired", ".status.desiredReplicas", "integer"),
        Column("Up-to-date", ".status.updatedReplicas", "integer"),
    ),
)
