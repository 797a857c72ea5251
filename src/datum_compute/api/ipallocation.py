"""IPAllocation: one prefix that is given to somebody. Cluster-scoped, kept in the platform.

The name is made from the prefix, so that to create the object is to take the prefix: the second one
who tries is told that it exists. Prefixes of one pool have one length, so that two of them are
equal or apart. It is the record of truth of what is taken; whoever holds the prefix shows it in a
status of its own.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import ObjectReference, ShortText, immutable, says
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, selectable_fields

Prefix = Annotated[str, Meta(pattern="^[0-9a-f.:]+/[0-9]{1,3}$", max_length=49)]


class IPAllocationSpec(ApiStruct, frozen=True, kw_only=True):
    cidr: Annotated[Prefix, says("The prefix that is given.")]
    pool: Annotated[Prefix, says("The prefix that it was cut from.")]
    project: Annotated[ShortText, says("Project of whoever holds it.")]
    holder: Annotated[ObjectReference, says("Who holds it, in that project.")]
    holder_uid: Annotated[ShortText, says("UID of who holds it.")]


class IPAllocation(ApiObject, frozen=True, kw_only=True):
    """IPAllocation: one prefix that is given to somebody. Cluster-scoped, kept in the platform."""

    spec: Annotated[
        IPAllocationSpec,
        says("What is given, and to whom."),
        immutable("delete the allocation and create another"),
    ]


IP_ALLOCATION = KindInfo(
    group="ipam.miloapis.com",
    version="v1alpha1",
    kind="IPAllocation",
    plural="ipallocations",
    model=IPAllocation,
    namespaced=False,
    has_status=False,
    categories=("ipam",),
    selectable=selectable_fields("spec.project", "spec.pool"),
    columns=(
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Prefix", ".spec.cidr"),
        Column("Project", ".spec.project"),
        Column("Holder Kind", ".spec.holder.kind"),
        Column("Holder", ".spec.holder.name"),
        Column("Pool", ".spec.pool", wide=True),
    ),
)
