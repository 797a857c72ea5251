"""Namespace (core): a terminating one is emptied, then removed."""

from __future__ import annotations

from typing import Annotated

from datum_compute.api.conditions import ConditionStatus
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import keyed
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, Selectable


class NamespaceSpec(ApiStruct, frozen=True, kw_only=True):
    finalizers: list[str] = []


class NamespaceCondition(ApiStruct, frozen=True, kw_only=True):
    """One thing that keeps a terminating namespace from going."""

    type: str
    status: ConditionStatus
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class NamespaceStatus(ApiStruct, frozen=True, kw_only=True):
    phase: str = "Active"
    conditions: Annotated[list[NamespaceCondition], keyed("type")] = []


class Namespace(ApiObject, frozen=True, kw_only=True):
    """Namespace (core): a terminating one is emptied, then removed."""

    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


NAMESPACE = KindInfo(
    group="",
    version="v1",
    kind="Namespace",
    plural="namespaces",
    model=Namespace,
    namespaced=False,
    built_in=True,
    needs_version=False,
    has_generation=False,
    selectable=(Selectable("status.phase", ".status.phase"),),
    short_names=("ns",),
    columns=(
        Column("Status", ".status.phase"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
