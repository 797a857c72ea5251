"""ResourceRegistration: a kind of thing that is counted or measured under quota.

Kept by operators in the platform, cluster-scoped. What it counts, for whom and in which way never
changes, because amounts were granted and claimed in these terms.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from datum_compute.api.conditions import Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import (
    KindReference,
    PositiveAmount,
    Text,
    immutable,
    keyed,
    says,
)
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, selectable_fields

_INSTEAD = "register another resource type instead"

ResourceType = Annotated[str, Meta(min_length=1, max_length=253)]
Unit = Annotated[str, Meta(min_length=1, max_length=50)]


class ResourceRegistrationSpec(ApiStruct, frozen=True, kw_only=True):
    consumer_type: Annotated[
        KindReference, says("The kind that amounts are granted to."), immutable(_INSTEAD)
    ]
    type: Annotated[
        Literal["Entity", "Allocation", "Feature"],
        says("Entity: objects are counted. Allocation: an amount is measured. Feature: on or off."),
        immutable(_INSTEAD),
    ]
    resource_type: Annotated[
        ResourceType,
        says("Name of what is counted, such as compute.datumapis.com/instances."),
        immutable(_INSTEAD),
    ]
    description: Annotated[Text, says("What is counted, for people.")] = ""
    base_unit: Annotated[Unit, says("Unit of all amounts, such as millicore.")]
    display_unit: Annotated[Unit, says("Unit that people are shown, such as vCPU.")]
    unit_conversion_factor: Annotated[
        PositiveAmount, says("How many base units make a display unit.")
    ] = 1
    claiming_resources: Annotated[
        list[KindReference],
        keyed("apiGroup", "kind"),
        Meta(min_length=1, max_length=20),
        says("Kinds that may claim it."),
    ]


class ResourceRegistrationStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    observed_generation: Annotated[int, says("The generation that this status is about.")] = 0


class ResourceRegistration(ApiObject, frozen=True, kw_only=True):
    """ResourceRegistration: a kind of thing that is counted or measured under quota."""

    spec: ResourceRegistrationSpec
    status: ResourceRegistrationStatus = ResourceRegistrationStatus()


REGISTRATION = KindInfo(
    group="quota.miloapis.com",
    version="v1alpha1",
    kind="ResourceRegistration",
    plural="resourceregistrations",
    model=ResourceRegistration,
    namespaced=False,
    categories=("quota",),
    selectable=selectable_fields("spec.resourceType"),
    columns=(
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Resource Type", ".spec.resourceType"),
        Column("Type", ".spec.type"),
        Column("Consumer", ".spec.consumerType.kind"),
        Column("Active", '.status.conditions[?(@.type=="Active")].status'),
        Column("Unit", ".spec.displayUnit", wide=True),
    ),
)
