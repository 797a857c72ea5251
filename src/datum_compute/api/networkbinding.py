"""NetworkBinding: the wish that a Network be present in a location, by whoever needs it there.

As long as one binding of a network and location is left, their NetworkContext stays.
"""

from __future__ import annotations

from typing import Annotated

from datum_compute.api.conditions import Conditions, undecided
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import (
    LocalReference,
    NamespacedReference,
    ObjectReference,
    immutable,
    says,
)
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, selectable_fields

_INSTEAD = "create another binding instead"


class NetworkBindingSpec(ApiStruct, frozen=True, kw_only=True):
    network: Annotated[NamespacedReference, says("The network."), immutable(_INSTEAD)]
    location: Annotated[LocalReference, says("The location."), immutable(_INSTEAD)]
    consumer: Annotated[
        ObjectReference | None, says("Who needs the network there; for people only.")
    ] = None


class NetworkBindingStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    network_context_ref: Annotated[
        NamespacedReference | None, says("The network as it is present in the location.")
    ] = None
    network_context_uid: Annotated[
        str, says("UID of that network context; another of its name is not the same.")
    ] = ""
    observed_generation: Annotated[int, says("The generation that this status is about.")] = 0


class NetworkBinding(ApiObject, frozen=True, kw_only=True):
    """NetworkBinding: the wish that a Network be present in a location, by whoever needs it
    there.
    """

    spec: NetworkBindingSpec
    status: NetworkBindingStatus = NetworkBindingStatus(conditions=undecided("Ready"))


NETWORK_BINDING = KindInfo(
    group="networking.datumapis.com",
    version="v1alpha",
    kind="NetworkBinding",
    plural="networkbindings",
    model=NetworkBinding,
    short_names=("netbind",),
    categories=("networking",),
    selectable=selectable_fields("spec.network.name", "spec.location.name"),
    columns=(
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Network", ".spec.network.name"),
        Column("Location", ".spec.location.name"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
    ),
)
