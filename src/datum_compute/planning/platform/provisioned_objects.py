"""Plan the grants and location bindings that an active entitlement creates in its project."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from datum_compute.api import labels
from datum_compute.api.conditions import FALSE, TRUE, ConditionValue, find_condition, set_conditions
from datum_compute.api.kinds import ENTITLEMENT, GRANT, LOCATION_BINDING
from datum_compute.api.meta.fields import CITY_CODE_KEY, LocalReference
from datum_compute.api.meta.names import label_value_problem
from datum_compute.api.meta.objects import ObjectMeta, controller_uid, owner_reference, ref_of
from datum_compute.api.networking.location import (
    Location,
    LocationBinding,
    LocationBindingSpec,
    LocationBindingStatus,
)
from datum_compute.api.planes import PlaneName, member_name
from datum_compute.api.quota import (
    PROJECT_KIND,
    QUOTA_NAMESPACE,
    Allowance,
    GrantedBucket,
    ResourceGrant,
    ResourceGrantSpec,
    consumer_of,
)
from datum_compute.api.services import (
    QuotaLimit,
    ServiceConfiguration,
    ServiceEntitlement,
    grant_name,
)
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
    """Plan a grant for each quota limit that applies to projects.

    When the default of a limit changes, grants that no operator changed are updated.
    """
    existing = {grant.metadata.name: grant for grant in observed}
    actions: list[Action] = []
    for limit in configuration.spec.quota.limits:
        if limit.consumer_type.kind != PROJECT_KIND:
            continue
        wanted = _build_grant(member_name(plane), owner, limit)
        found = existing.get(wanted.metadata.name)
        if found is None or (_is_controlled_by(found, owner) and _is_unchanged(found)):
            actions += plan_object(plane, GRANT, wanted, found, f"limit {limit.name}")
    return actions


def plan_grant_removal(plane: PlaneName, grant: ResourceGrant) -> Action:
    """Delete the grant of a deleted entitlement.

    A grant that an operator changed is kept without its owner. Otherwise a project could remove a
    lowered limit by deleting and recreating its entitlement.
    """
    version = grant.metadata.resource_version
    if _is_unchanged(grant):
        uid, reason = grant.metadata.uid, "its entitlement is deleted"
        return Delete(plane, GRANT, ref_of(grant), uid, reason, version)
    kept = {"metadata": {"resourceVersion": version, "ownerReferences": []}}
    return Patch(plane, GRANT, ref_of(grant), kept, "changed by an operator")


def plan_bindings(
    plane: PlaneName,
    owner: ServiceEntitlement,
    configuration: ServiceConfiguration,
    locations: Sequence[Location],
    observed: Sequence[LocationBinding],
    now: str,
) -> list[Action]:
    """Plan a binding for each location of a supported class.

    Bindings with another owner are not changed.
    """
    existing = {binding.metadata.name: binding for binding in observed}
    classes = configuration.spec.locations.supported_classes
    actions: list[Action] = _plan_binding_deletions(plane, owner, locations, observed)
    for location in sorted(locations, key=ref_of):
        if location.is_terminating:
            continue
        found = existing.get(location.metadata.name)
        supported = location.spec.location_class_name in classes
        if found is None:
            if supported:
                actions.append(
                    Create(
                        plane,
                        LOCATION_BINDING,
                        _build_location_binding(owner, location),
                        "location offered",
                    )
                )
        elif _is_controlled_by(found, owner) and not found.is_terminating:
            wanted = _build_location_binding(owner, location)
            actions += plan_object(plane, LOCATION_BINDING, wanted, found, "follow the location")
            actions += _plan_availability(plane, found, location, now, supported=supported)
    return actions


def _plan_binding_deletions(
    plane: PlaneName,
    owner: ServiceEntitlement,
    locations: Sequence[Location],
    observed: Sequence[LocationBinding],
) -> list[Action]:
    names = {location.metadata.name for location in locations}
    return [
        Delete(plane, LOCATION_BINDING, ref_of(b), b.metadata.uid, "its location is deleted")
        for b in observed
        if b.metadata.name not in names and _is_controlled_by(b, owner) and not b.is_terminating
    ]


def _plan_availability(
    plane: PlaneName, binding: LocationBinding, location: Location, now: str, *, supported: bool
) -> list[Action]:
    generation = binding.metadata.generation
    conditions = set_conditions(
        binding.status.conditions,
        {AVAILABLE: _available_verdict(location, supported=supported)},
        generation=generation,
        now=now,
    )
    status = LocationBindingStatus(conditions=conditions, observed_generation=generation)
    return plan_status(plane, LOCATION_BINDING, binding, status)


def _available_verdict(location: Location, *, supported: bool) -> ConditionValue:
    if not supported:
        message = (
            f"The service does not run in locations of class {location.spec.location_class_name}"
        )
        return ConditionValue(FALSE, "LocationClassNotSupported", message)
    ready = find_condition(location.status.conditions, "Ready")
    if ready is None or ready.status != TRUE:
        return location_not_ready(ready)
    return ConditionValue(TRUE, "AllGatesOpen", "The location is ready and the service runs there")


def _is_controlled_by(obj: ResourceGrant | LocationBinding, owner: ServiceEntitlement) -> bool:
    return controller_uid(obj) == owner.metadata.uid


def _is_unchanged(grant: ResourceGrant) -> bool:
    default = grant.metadata.annotations.get(labels.DEFAULT_LIMIT)
    amounts = [bucket.amount for allowed in grant.spec.allowances for bucket in allowed.buckets]
    return [str(amount) for amount in amounts] == [default]


def _build_grant(project: str, owner: ServiceEntitlement, limit: QuotaLimit) -> ResourceGrant:
    amount = limit.default_limit
    metadata = _controlled_metadata(
        owner, grant_name(owner.spec.service_ref.name, project, limit.name)
    )
    return ResourceGrant(
        metadata=msgspec.structs.replace(
            metadata,
            namespace=QUOTA_NAMESPACE,
            labels={**metadata.labels, **_limit_label(limit.name)},
            annotations={labels.DEFAULT_LIMIT: str(amount)},
        ),
        spec=ResourceGrantSpec(
            consumer_ref=consumer_of(project),
            allowances=[
                Allowance(resource_type=limit.metric, buckets=[GrantedBucket(amount=amount)])
            ],
        ),
    )


def _limit_label(limit: str) -> dict[str, str]:
    return {} if label_value_problem(limit) else {labels.LIMIT: limit}


def _build_location_binding(owner: ServiceEntitlement, location: Location) -> LocationBinding:
    name = location.metadata.name
    return LocationBinding(
        metadata=_controlled_metadata(owner, name),
        spec=LocationBindingSpec(
            location_ref=LocalReference(name=name),
            location_class_name=location.spec.location_class_name,
            display_name=location.spec.topology.get(CITY_CODE_KEY, name),
            topology=location.spec.topology,
        ),
    )


def _controlled_metadata(owner: ServiceEntitlement, name: str) -> ObjectMeta:
    return ObjectMeta(
        name=name,
        labels={labels.ENTITLEMENT: owner.metadata.name},
        owner_references=[owner_reference(owner, ENTITLEMENT)],
    )
