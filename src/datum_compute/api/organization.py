"""Organization: the owner of projects. Cluster-scoped, kept in the platform.

What belongs to it lies in the namespace ``organization-<name>``. The public documents name no field
of its spec; a name for people is all there is.
"""

from __future__ import annotations

from typing import Annotated

from datum_compute.api.conditions import Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import ShortText, says
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo


class OrganizationSpec(ApiStruct, frozen=True, kw_only=True):
    display_name: Annotated[ShortText, says("Name for people.")] = ""


class OrganizationStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    observed_generation: Annotated[int, says("The generation that this status is about.")] = 0


class Organization(ApiObject, frozen=True, kw_only=True):
    """Organization: the owner of projects. Cluster-scoped, kept in the platform."""

    spec: OrganizationSpec = OrganizationSpec()
    status: OrganizationStatus = OrganizationStatus()


ORGANIZATION = KindInfo(
    group="resourcemanager.miloapis.com",
    version="v1alpha1",
    kind="Organization",
    plural="organizations",
    model=Organization,
    namespaced=False,
    short_names=("org",),
    categories=("resourcemanager",),
    columns=(
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Display Name", ".spec.displayName"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
    ),
)
