"""Work (Karmada): one object for one cell. A terminating Work is the tombstone of its copy."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from datum_compute.api.conditions import Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo

Manifest = Annotated[
    dict[str, Any],
    Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True}),
]


class WorkloadTemplate(ApiStruct, frozen=True, kw_only=True):
    manifests: Annotated[list[Manifest], Meta(min_length=1)]


class WorkSpec(ApiStruct, frozen=True, kw_only=True):
    workload: WorkloadTemplate
    suspend_dispatching: bool | None = None


class ManifestStatus(ApiStruct, frozen=True, kw_only=True):
    status: Manifest | None = None


class WorkStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    manifest_statuses: list[ManifestStatus] = []


class Work(ApiObject, frozen=True, kw_only=True):
    """Work (Karmada): one object for one cell. A terminating Work is the tombstone of its copy."""

    spec: WorkSpec
    status: WorkStatus = WorkStatus()


WORK = KindInfo(
    group="work.karmada.io",
    version="v1alpha1",
    kind="Work",
    plural="works",
    model=Work,
    partial=True,
    short_names=("wk",),
    columns=(
        Column("Applied", '.status.conditions[?(@.type=="Applied")].status'),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
