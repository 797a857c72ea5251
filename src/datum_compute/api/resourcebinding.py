"""ResourceBinding (Karmada): where one namespaced hub object has been placed, and how it fares."""

from __future__ import annotations

from typing import Any

from datum_compute.api.conditions import Conditions
from datum_compute.api.karmada import Suspension
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo


class ObjectReference(ApiStruct, frozen=True, kw_only=True):
    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


class TargetCluster(ApiStruct, frozen=True, kw_only=True):
    name: str


class ResourceBindingSpec(ApiStruct, frozen=True, kw_only=True):
    resource: ObjectReference
    clusters: list[TargetCluster] = []
    suspension: Suspension | None = None


class AggregatedStatusItem(ApiStruct, frozen=True, kw_only=True):
    cluster_name: str
    applied: bool = False
    applied_message: str = ""
    status: dict[str, Any] | None = None


class ResourceBindingStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    aggregated_status: list[AggregatedStatusItem] = []


class ResourceBinding(ApiObject, frozen=True, kw_only=True):
    """ResourceBinding (Karmada): where one namespaced hub object has been placed, and how it
    fares.
    """

    spec: ResourceBindingSpec
    status: ResourceBindingStatus = ResourceBindingStatus()


COLUMNS = (
    Column("Scheduled", '.status.conditions[?(@.type=="Scheduled")].status'),
    Column("FullyApplied", '.status.conditions[?(@.type=="FullyApplied")].status'),
    Column("Age", ".metadata.creationTimestamp", "date"),
)

BINDING = KindInfo(
    group="work.karmada.io",
    version="v1alpha2",
    kind="ResourceBinding",
    plural="resourcebindings",
    model=ResourceBinding,
    partial=True,
    short_names=("rb",),
    columns=COLUMNS,
)
