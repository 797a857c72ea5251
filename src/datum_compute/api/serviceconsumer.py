"""ServiceConsumer: a project that uses, or wants to use, a Service; what its provider decides on.

Cluster-scoped, kept in the provider's project, one for each entitlement of a consumer project.
"""

from __future__ import annotations

from typing import Annotated, Literal

from datum_compute.api.conditions import Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import LocalReference, ShortText, Text, Time, says
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, selectable_fields


class Approval(ApiStruct, frozen=True, kw_only=True):
    """What the provider has decided."""

    decision: Annotated[Literal["Approved", "Denied"], says("The decision.")]
    message: Annotated[Text, says("A word to whoever asked.")] = ""


class ServiceConsumerSpec(ApiStruct, frozen=True, kw_only=True):
    service_ref: Annotated[LocalReference, says("The service, by the name of its object.")]
    consumer_project_ref: Annotated[LocalReference, says("The project that uses it.")]
    approval: Annotated[
        Approval | None, says("The provider's decision; absent until there is one.")
    ] = None
    suspended: Annotated[bool, says("Whether use of the service is suspended.")] = False


class ServiceConsumerStatus(ApiStruct, frozen=True, kw_only=True):
    phase: Annotated[
        Literal["PendingApproval", "Active", "Denied"] | None,
        says("Whether the project may use the service; absent until it was looked at."),
    ] = None
    entitled_at: Annotated[Time | None, says("When it became Active first (RFC 3339).")] = None
    service_name: Annotated[ShortText, says("Name of the service over all releases.")] = ""
    conditions: Conditions = []
    observed_generation: Annotated[int, says("The generation that this status is about.")] = 0


class ServiceConsumer(ApiObject, frozen=True, kw_only=True):
    """ServiceConsumer: a project that uses, or wants to use, a Service; what its provider decides
    on.
    """

    spec: ServiceConsumerSpec
    status: ServiceConsumerStatus = ServiceConsumerStatus()


CONSUMER = KindInfo(
    group="services.miloapis.com",
    version="v1alpha1",
    kind="ServiceConsumer",
    plural="serviceconsumers",
    model=ServiceConsumer,
    namespaced=False,
    categories=("catalogue",),
    selectable=selectable_fields("spec.serviceRef.name", "spec.consumerProjectRef.name"),
    columns=(
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Service", ".spec.serviceRef.name"),
        Column("Project", ".spec.consumerProjectRef.name"),
        Column("Phase", ".status.phase"),
        Column("Decision", ".spec.approval.decision"),
        Column("Suspended", ".spec.suspended", "boolean", wide=True),
    ),
)
