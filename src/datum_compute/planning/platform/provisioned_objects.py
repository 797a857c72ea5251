"""What an entitled project gets: a grant for each limit of the service, and its locations."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from datum_compute.api import labels
from datum_compute.api.conditions import FALSE, TRUE, Verdict, find_condition, with_verdicts
from datum_compute.api.entitlements import grant_name
from datum_compute.api.fields import CITY_CODE_KEY, LocalReference
from datum_compute.api.kinds import ENTITLEMENT, GRANT, LOCATION_BINDING
from datum_compute.api.location import Location
from datum_compute.api.locationbinding import (
    LocationBinding,
    LocationBindingSpec,
    LocationBindingStatus,
)
from datum_compute.api.meta import ObjectMeta, controller_uid, owner_reference, ref_of
from datum_compute.api.names import label_value_problem
from datum_compute.api.plane import PlaneName, member_name
from datum_compute.api.quotametrics import PROJECT_KIND, QUOTA_NAMESPACE, consumer_of
from datum_compute.api.resourcegrant import (
    Allowance,
    GrantedBucket,
    ResourceGrant,
    ResourceGrantSpec,
)
from datum_compute.api.serviceconfiguration import QuotaLimit, ServiceConfiguration
from datum_compute.api.serviceentitlement import ServiceEntitlement
from datum_compute.planning.apply import plan_object, plan_status
from datum_compute.planning.plan import Action, Create, Delete, Patch
from datum_compute.planning.platform.locations import location_not_ready

AVAILABLE = "Available"


def plan_grants(
    plane: PlaneName,
    owner: ServiceEntitlement,
    configuration: ServiceConfiguration,
    observed: Sequence[ResourceGrant],
) -> list[Action]:
    """One for each limit of projects. One that is as it was made follows a new default."""
    present = {grant.metadata.name: grant for grant in observed}
    actions: list[Action] = []
    for limit in configuration.spec.quota.limits:
        if limit.consumer_type.kind != PROJECT_KIND:
            continue
        wanted = _grant(member_name(plane), owner, limit)
        found = present.get(wanted.metadata.name)
        if found is None or (_is_ours(found, owner) and _is_as_made(found)):
            actions += plan_object(plane, GRANT, wanted, found, f"limit {limit.name}")
    return actions


def plan_grant_removal(plane: PlaneName, grant: ResourceGrant) -> Action:
    """At the end of the entitlement. One that an operator has changed stays, and is nobody's: a
    project cannot shake off a lower limit by asking for access anew."""
    version = grant.metadata.resource_version
    if _is_as_made(grant):
        uid, reason = grant.metadata.uid, "its entitlement is deleted"
        return Delete(plane, GRANT, ref_of(grant), uid, reason, version)
    kept = {"metadata": {"resourceVersion": version, "ownerReferences": []}}
    return Patch(plane, GRANT, ref_of(grant), kept, "an operator has decided on it")


def plan_bindings(
    plane: PlaneName,
    owner: ServiceEntitlement,
    configuration: ServiceConfiguration,
    locations: Sequence[Location],
    observed: Sequence[LocationBinding],
    now: str,
) -> list[Action]:
    """One for each location of a class that the service supports; those of others are theirs."""
    present = {binding.metadata.name: binding for binding in observed}
    classes = configuration.spec.locations.supported_classes
    actions: list[Action] = _removals(plane, owner, locations, observed)
    for location in sorted(locations, key=ref_of):
        if location.is_terminating:
            continue
        found = present.get(location.metadata.name)
        supported = location.spec.location_class_name in classes
        if found is None:
            if supported:
                actions.append(
                    Create(plane, LOCATION_BINDING, _binding(owner, location), "offered")
                )
        elif _is_ours(found, owner) and not found.is_terminating:
            wanted = _binding(owner, location)
            actions += plan_object(plane, LOCATION_BINDING, wanted, found, "as its location")
            actions += _availability(plane, found, location, now, supported=supported)
    return actions


def _removals(
    plane: PlaneName,
    owner: ServiceEntitlement,
    locations: Sequence[Location],
    observed: Sequence[LocationBinding],
) -> list[Action]:
    there = {location.metadata.name for location in locations}
    return [
        Delete(plane, LOCATION_BINDING, ref_of(b), b.metadata.uid, "its location is gone")
        for b in observed
        if b.metadata.name not in there and _is_ours(b, owner) and not b.is_terminating
    ]


def _availability(
    plane: PlaneName, binding: LocationBinding, location: Location, now: str, *, supported: bool
) -> list[Action]:
    generation = binding.metadata.generation
    told = with_verdicts(
        binding.status.conditions,
        {AVAILABLE: _gates(location, supported=supported)},
        generation=generation,
        now=now,
    )
    status = LocationBindingStatus(conditions=told, observed_generation=generation)
    return plan_status(plane, LOCATION_BINDING, binding, status)


def _gates(location: Location, *, supported: bool) -> Verdict:
    if not supported:
        said = f"The service does not run in locations of class {location.spec.location_class_name}"
        return Verdict(FALSE, "LocationClassNotSupported", said)
    ready = find_condition(location.status.conditions, "Ready")
    if ready is None or ready.status != TRUE:
        return location_not_ready(ready)
    return Verdict(TRUE, "AllGatesOpen", "The location is ready and the service runs there")


def _is_ours(obj: ResourceGrant | LocationBinding, owner: ServiceEntitlement) -> bool:
    return controller_uid(obj) == owner.metadata.uid


def _is_as_made(grant: ResourceGrant) -> bool:
    made_with = grant.metadata.annotations.get(labels.DEFAULT_LIMIT)
    amounts = [bucket.amount for allowed in grant.spec.allowances for bucket in allowed.buckets]
    return [str(amount) for amount in amounts] == [made_with]


def _grant(project: str, owner: ServiceEntitlement, limit: QuotaLimit) -> ResourceGrant:
    amount = limit.default_limit
    made = _made_by(owner, grant_name(owner.spec.service_ref.name, project, limit.name))
    return ResourceGrant(
        metadata=msgspec.structs.replace(
            made,
            namespace=QUOTA_NAMESPACE,
            labels={**made.labels, **_found_by(limit.name)},
            annotations={labels.DEFAULT_LIMIT: str(amount)},
        ),
        spec=ResourceGrantSpec(
            consumer_ref=consumer_of(project),
            allowances=[
                Allowance(resource_type=limit.metric, buckets=[GrantedBucket(amount=amount)])
            ],
        ),
    )


def _found_by(limit: str) -> dict[str, str]:
    return {} if label_value_problem(limit) else {labels.LIMIT: limit}


def _binding(owner: ServiceEntitlement, location: Location) -> LocationBinding:
    name = location.metadata.name
    return LocationBinding(
        metadata=_made_by(owner, name),
        spec=LocationBindingSpec(
            location_ref=LocalReference(name=name),
            location_class_name=location.spec.location_class_name,
            display_name=location.spec.topology.get(CITY_CODE_KEY, name),
            topology=location.spec.topology,
        ),
    )


def _made_by(owner: ServiceEntitlement, name: str) -> ObjectMeta:
    return ObjectMeta(
        name=name,
        labels={labels.ENTITLEMENT: owner.metadata.name},
        owner_references=[owner_reference(owner, ENTITLEMENT)],
    )
