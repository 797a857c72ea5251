"""Location: a place where instances can run, such as a city. Operators create it.

An external system sets Ready. A project can use a location if it has a LocationBinding of that
name.
"""

from __future__ import annotations

from typing import Annotated

from datum_compute.api.conditions import Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import LocalReference, LocationClass, ShortText, Topology, doc
from datum_compute.api.meta.objects import ApiObject, KindInfo, TableColumn, selectable_fields

CITY = r".spec.topology.topology\.datum\.net/city-code"


class GcpProvider(ApiStruct, frozen=True, kw_only=True):
    """The place in Google Cloud."""

    project_id: Annotated[ShortText, doc("ID of the Google Cloud project.")]
    region: Annotated[ShortText, doc("Google Cloud region.")]
    zone: Annotated[ShortText, doc("Google Cloud zone.")]


class LocationProvider(ApiStruct, frozen=True, kw_only=True):
    """Provider of the machines, if it is not the platform itself."""

    gcp: Annotated[GcpProvider | None, doc("Set if the machines belong to Google Cloud.")] = None


class LocationSpec(ApiStruct, frozen=True, kw_only=True):
    location_class_name: Annotated[LocationClass, doc("Who operates the location.")]
    topology: Topology
    provider: LocationProvider = LocationProvider()


class LocationStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    observed_generation: Annotated[int, doc("Generation that this status describes.")] = 0


class Location(ApiObject, frozen=True, kw_only=True):
    """A Location is a place where instances can run, such as a city. Operators create it on the
    platform plane.
    """

    spec: LocationSpec
    status: LocationStatus = LocationStatus()


LOCATION = KindInfo(
    group="networking.datumapis.com",
    version="v1alpha",
    kind="Location",
    plural="locations",
    model=Location,
    namespaced=False,
    short_names=("loc",),
    categories=("networking",),
    selectable=selectable_fields("spec.locationClassName"),
    columns=(
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("City", CITY),
        TableColumn("Class", ".spec.locationClassName"),
        TableColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
    ),
)


# --- LocationBinding: allows a project to use a Location
# The cities of a Workload are checked against the bindings of its project, not against the
# Locations of the platform.


class LocationBindingSpec(ApiStruct, frozen=True, kw_only=True):
    location_ref: Annotated[LocalReference, doc("Location on the platform plane.")]
    location_class_name: Annotated[LocationClass, doc("Who operates the location.")]
    display_name: Annotated[ShortText, doc("Name for people.")] = ""
    topology: Topology


class LocationBindingStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    observed_generation: Annotated[int, doc("Generation that this status describes.")] = 0


class LocationBinding(ApiObject, frozen=True, kw_only=True):
    """A LocationBinding allows a project to use a Location."""

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
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("City", CITY),
        TableColumn("Class", ".spec.locationClassName"),
        TableColumn("Available", '.status.conditions[?(@.type=="Available")].status'),
        TableColumn("Reason", '.status.conditions[?(@.type=="Available")].reason'),
        TableColumn("Display Name", ".spec.displayName", wide=True),
    ),
)
