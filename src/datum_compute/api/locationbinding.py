"""LocationBinding: permission for a project to use a Location; cluster-scoped in the project.

Its presence is the permission; the cities of a Workload are checked against these, not against the
Locations of the platform.
"""

from __future__ import annotations

from typing import Annotated

from datum_compute.api.conditions import Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import LocalReference, LocationClass, ShortText, Topology, says
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, selectable_fields
from datum_compute.api.networking.location import CITY


class LocationBindingSpec(ApiStruct, frozen=True, kw_only=True):
    location_ref: Annotated[LocalReference, says("The location, in the platform.")]
    location_class_name: Annotated[LocationClass, says("Who is responsible for the location.")]
    display_name: Annotated[ShortText, says("Name for people.")] = ""
    topology: Topology


class LocationBindingStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    observed_generation: Annotated[int, says("The generation that this status is about.")] = 0


class LocationBinding(ApiObject, frozen=True, kw_only=True):
    """LocationBinding: permission for a project to use a Location; cluster-scoped in the
    project.
    """

    spec: LocationBindingSpec
    status: LocationBindingStatus = LocationBindingStatus()


LOCATION_BINDING = KindInfo(
    group="networking.datumapis.com",
    version="v1alpha",
    kind="LocationBinding",
    plural="locationbindings",
    model=LocationBinding,
    namespaced=False,
    short_names=("locbind",),
    categories=("networking",),
    selectable=selectable_fields("spec.locationRef.name"),
    columns=(
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("City", CITY),
        Column("Class", ".spec.locationClassName"),
        Column("Available", '.status.conditions[?(@.type=="Available")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Available")].reason'),
        Column("Display Name", ".spec.displayName", wide=True),
    ),
)
