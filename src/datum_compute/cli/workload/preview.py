"""The effect of a plan before it is applied: instances, quota, referenced objects, images, cities.

The planners of the platform compute it from the current state of the project. A problem would
prevent the workload from running, so ``deploy`` stops at it unless ``--skip-checks`` is given. Only
what the plan changes is checked, so that a deploy reads few objects before it writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from datum_compute.api.compute.deployment import WorkloadDeployment, WorkloadDeploymentSpec
from datum_compute.api.compute.instance import Instance
from datum_compute.api.compute.referenced_data import references
from datum_compute.api.compute.workload import Workload
from datum_compute.api.conditions import FALSE, Condition, Reason, find_condition
from datum_compute.api.errors import Forbidden, NotFound
from datum_compute.api.kinds import (
    BUCKET,
    CLAIM,
    CONFIG_MAP,
    INSTANCE,
    INSTANCE_TYPE,
    LOCATION_BINDING,
    NETWORK,
    SECRET,
)
from datum_compute.api.labels import WORKLOAD_UID
from datum_compute.api.meta.codec import from_json
from datum_compute.api.meta.objects import KindInfo, Ref
from datum_compute.api.planes import deployment_of, normalize_city
from datum_compute.api.quota import (
    QUOTA_NAMESPACE,
    WORKLOADS,
    AllowanceBucket,
    AllowanceBucketStatus,
    ResourceClaim,
)
from datum_compute.cli.commands.cities import city_of
from datum_compute.cli.commands.quota import bucket_name, bucket_order, render_amount, render_unit
from datum_compute.cli.connect.session import Session
from datum_compute.cli.errors import MissingError, QuotaError, UsageError
from datum_compute.cli.render.output import one_line
from datum_compute.cli.workload.image_check import check_images
from datum_compute.cli.workload.plan import WorkloadPlan
from datum_compute.cli.workload.rollout import place_of
from datum_compute.planning.quota.claims import (
    InstanceSize,
    explicit_size,
    is_granted,
    requests_of,
    size_of,
)
from datum_compute.planning.rollout.slots import slots_of
from datum_compute.planning.rollout.surge import surge_max, unavailable_max
from datum_compute.planning.rollout.suspension import halt_reason
from datum_compute.planning.workload.city_order import city_order_of
from datum_compute.planning.workload.deployments import desired_deployments
from datum_compute.planning.workload.names import place_of_deployment
from datum_compute.planning.workload.templates import template_hash


@dataclass(frozen=True, slots=True)
class Interruption:
    """A city has no service while its instances are recreated, for about ``seconds`` each time."""

    city: str
    instances: int
    seconds: int


@dataclass(frozen=True, slots=True)
class SurgeNeed:
    """The surge instances that the rollout of a city creates.

    ``interruptions`` are those of the city if its rollout continues without surge.
    """

    city: str
    instances: int
    interruptions: tuple[Interruption, ...]


@dataclass(frozen=True, slots=True)
class InstanceChanges:
    """Names of the instances that are recreated and removed, and the number of created ones.

    ``cities`` is the number of cities that recreate instances, in the order ``city_order``.
    ``at_once`` is how many each of them may recreate at the same time. ``surge`` has one item for
    each city that needs surge instances; ``surge_at_once`` of them exist at the same time.
    """

    recreated: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    created: int = 0
    cities: int = 0
    at_once: int = 1
    interruptions: tuple[Interruption, ...] = ()
    city_order: str = "Parallel"
    surge: tuple[SurgeNeed, ...] = ()
    surge_at_once: int = 0


@dataclass(frozen=True, slots=True)
class Preview:
    """``problems`` are the errors with which ``deploy`` stops; ``warnings`` do not stop it."""

    instances: InstanceChanges = InstanceChanges()
    quota: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    problems: tuple[UsageError, ...] = ()


async def preview_plan(session: Session, plan: WorkloadPlan) -> Preview:
    """Return an empty preview for a plan without changes."""
    if plan.action == "unchanged":
        return Preview()
    after = from_json(plan.outcome, Workload)
    before = from_json(plan.observed, Workload) if plan.observed is not None else None
    (
        scale,
        (references_found, references_missing),
        (images, refused),
        unavailable,
    ) = await asyncio.gather(
        _preview_scale(session, before, after),
        _check_references(session, after),
        check_images(session, before, after),
        _unavailable_cities(session, before),
    )
    return Preview(
        scale.changes,
        quota=tuple(scale.quota.lines),
        references=tuple(references_found),
        images=tuple(images),
        warnings=(
            *scale.quota.warnings,
            *_pause_warnings(session, after),
            *_city_warnings(before, after, unavailable, scale.cities_in_use),
        ),
        problems=(*scale.quota.shortages, *references_missing, *refused),
    )


async def preview_instances(session: Session, plan: WorkloadPlan) -> Preview:
    """Return a preview of the instances and the quota only."""
    if plan.action == "unchanged":
        return Preview()
    after = from_json(plan.outcome, Workload)
    before = from_json(plan.observed, Workload) if plan.observed is not None else None
    scale = await _preview_scale(session, before, after)
    quota = scale.quota
    return Preview(scale.changes, quota=tuple(quota.lines), problems=tuple(quota.shortages))


@dataclass(slots=True)
class _QuotaPreview:
    """The use of each quota after the plan, and the shortages.

    ``interruptions`` are those of the cities that are updated without surge for lack of quota.
    """

    lines: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    shortages: list[UsageError] = field(default_factory=list)
    interruptions: tuple[Interruption, ...] = ()


@dataclass(frozen=True, slots=True)
class _ScalePreview:
    """The effect of a plan on instances and quota, and the cities that have instances now."""

    changes: InstanceChanges
    cities_in_use: set[str]
    quota: _QuotaPreview


async def _preview_scale(
    session: Session, before: Workload | None, after: Workload
) -> _ScalePreview:
    instances = await _list_instances(session, before)
    changes = plan_instance_changes(before, after, instances)
    quota = await _preview_quota(session, before, after, instances, changes)
    interruptions = (*changes.interruptions, *quota.interruptions)
    changes = replace(changes, interruptions=interruptions)
    return _ScalePreview(changes, {place_of(i).city for i in instances}, quota)


async def _list_instances(session: Session, before: Workload | None) -> Sequence[Instance]:
    if before is None:
        return ()
    labels = {WORKLOAD_UID: before.metadata.uid}
    return (await session.client.list(INSTANCE, session.namespace, labels=labels)).items


def _pause_warnings(session: Session, after: Workload) -> list[str]:
    if not after.spec.paused:
        return []
    resume = session.command("rollout", "resume", after.metadata.name)
    return [f"Paused: no instance is replaced until you resume the rollout: {resume}"]


# --- cities: warn of those that are drained or not ready


def _city_warnings(
    before: Workload | None,
    after: Workload,
    unavailable: Mapping[str, Condition],
    cities_in_use: set[str],
) -> list[str]:
    """Return one warning for each city of the workload that cannot start instances now.

    The server warns of the cities that a write adds. A drained city keeps its instances and updates
    them, so it is a problem for new instances only.
    """
    present = set(_cities_of(before)) if before is not None else set()
    warnings = []
    for city in _cities_of(after):
        if city not in present:
            continue
        condition = unavailable.get(city)
        if condition is None or (condition.reason == Reason.CELL_DRAINED and city in cities_in_use):
            continue
        why = one_line(condition.message).rstrip(".")
        warnings.append(
            f"Warning: {city} cannot start instances now, and the workload waits for it: {why}"
        )
    return warnings


def _cities_of(workload: Workload) -> list[str]:
    cities = (normalize_city(city) for p in workload.spec.placements for city in p.city_codes)
    return list(dict.fromkeys(cities))


async def _unavailable_cities(session: Session, before: Workload | None) -> dict[str, Condition]:
    """Return the cities that have no available location, each with the condition of one location.

    For a new workload nothing is read, because the server itself warns of such cities.
    """
    if before is None:
        return {}
    try:
        bindings = (await session.client.list(LOCATION_BINDING)).items
    except (Forbidden, NotFound):
        return {}
    unavailable: dict[str, Condition] = {}
    available: set[str] = set()
    for binding in bindings:
        city = normalize_city(city_of(binding))
        condition = find_condition(binding.status.conditions, "Available")
        if condition is not None and condition.status == FALSE:
            unavailable.setdefault(city, condition)
        else:
            available.add(city)
    return {city: condition for city, condition in unavailable.items() if city not in available}


# --- instances


def plan_instance_changes(
    before: Workload | None, after: Workload, instances: Sequence[Instance]
) -> InstanceChanges:
    """Return the effect of a plan on the instances.

    An instance is recreated if the plan changes its template and it does not run the new template
    already. It may, for example if a rollout is undone before it is complete.
    """
    recreated: list[str] = []
    created, kept, cities, at_once = 0, set(), set(), 1
    interruptions: list[Interruption] = []
    surge: list[SurgeNeed] = []
    deployments_before = (
        {place_of_deployment(d): d for d in desired_deployments(before)} if before else {}
    )
    for deployment in desired_deployments(after):
        place = place_of_deployment(deployment)
        desired = deployment.spec.scale_settings.min_replicas
        own = [instance for instance in instances if place_of(instance) == place]
        by_ordinal = slots_of(_deployment_name(own), own).by_ordinal
        earlier = deployments_before.get(place)
        desired_before = earlier.spec.scale_settings.min_replicas if earlier else desired
        kept |= {
            instance.metadata.name
            for number, instance in by_ordinal.items()
            # Ordinals between the two counts are removed by scaling down. Higher ones are surge
            # instances or are being removed already.
            if number < desired or number >= desired_before
        }
        created += sum(number not in by_ordinal for number in range(desired))
        if not _changes_template(earlier, deployment):
            continue
        new_hash = template_hash(deployment.spec.template)
        outdated = [
            by_ordinal[number].metadata.name
            for number in sorted(by_ordinal, reverse=True)
            if number < desired
            and by_ordinal[number].status.controller.observed_template_hash != new_hash
        ]
        if outdated:
            recreated += outdated
            cities.add(deployment.spec.city_code)
            at_once = max(at_once, _replaced_at_once(deployment.spec))
            interruptions += _find_interruptions(deployment.spec, len(outdated))
            surge += _find_surge_need(deployment.spec, len(outdated), by_ordinal.keys())
    removed = sorted(
        (place_of(i), i.metadata.name)
        for i in instances
        if not i.is_terminating and i.metadata.name not in kept
    )
    return InstanceChanges(
        recreated=tuple(recreated),
        removed=tuple(name for _, name in removed),
        created=created,
        cities=len(cities),
        at_once=at_once,
        interruptions=tuple(interruptions),
        city_order=city_order_of(after),
        surge=tuple(surge),
        surge_at_once=_surge_at_once(after, surge),
    )


def _replaced_at_once(spec: WorkloadDeploymentSpec) -> int:
    return unavailable_max(spec, spec.scale_settings.min_replicas) + surge_max(spec)


def _find_interruptions(
    spec: WorkloadDeploymentSpec, outdated: int, *, without_surge: bool = False
) -> list[Interruption]:
    """Return the interruption of a city that recreates all its instances at once, without surge.

    It lasts about as long as an instance may take to stop. A stopped workload has no service.
    """
    if halt_reason(spec) is not None:
        return []
    replicas = spec.scale_settings.min_replicas
    has_surge = surge_max(spec) > 0 and not without_surge
    if has_surge or unavailable_max(spec, replicas, without_surge=without_surge) < replicas:
        return []
    seconds = spec.template.spec.runtime.sandbox.termination_grace_period_seconds
    return [Interruption(spec.city_code, outdated, seconds)]


def _find_surge_need(
    spec: WorkloadDeploymentSpec, outdated: int, present: Collection[int]
) -> list[SurgeNeed]:
    """Return the surge instances that the rollout of a city creates; ``present`` are ordinals."""
    minimum = spec.scale_settings.min_replicas
    missing = set(range(minimum, minimum + surge_max(spec))) - set(present)
    if not missing or halt_reason(spec) is not None:
        return []
    interruptions = _find_interruptions(spec, outdated, without_surge=True)
    return [SurgeNeed(spec.city_code, len(missing), tuple(interruptions))]


def _surge_at_once(workload: Workload, needs: Sequence[SurgeNeed]) -> int:
    """Return how many surge instances exist at the same time, given the order of the cities."""
    order = city_order_of(workload)
    total = sum(need.instances for need in needs)
    if order == "Parallel" or not needs:
        return total
    if order == "Sequential":
        return max(need.instances for need in needs)
    canary = normalize_city(workload.spec.rollout.canary_city or needs[0].city)
    first = sum(need.instances for need in needs if need.city == canary)
    return max(first, total - first)


def _deployment_name(instances: Sequence[Instance]) -> str:
    """Return the name of the deployment of these instances; empty if there are none."""
    names = (deployment_of(i.metadata.name, i.metadata.labels) for i in instances)
    return min(names, default="")


def _changes_template(before: WorkloadDeployment | None, after: WorkloadDeployment) -> bool:
    if before is None or after.spec.paused:
        return False
    return template_hash(before.spec.template) != template_hash(after.spec.template)


# --- quota


async def _preview_quota(
    session: Session,
    before: Workload | None,
    after: Workload,
    instances: Sequence[Instance],
    changes: InstanceChanges,
) -> _QuotaPreview:
    """Return the use of each quota after the plan and during its rollout, and the shortages.

    Nothing is read for a plan that creates no instances and keeps their size, because its use of
    quota does not grow. A plan that does not raise the desired number of instances has no shortage:
    it only creates instances that are missing already. Missing quota for surge instances is not a
    shortage, because the rollout then continues without them.
    """
    keeps_size = before is not None and _size_fields(before) == _size_fields(after)
    keeps_use = keeps_size and not changes.created
    if keeps_use and not changes.surge:
        return _QuotaPreview()
    replicas = _desired_replicas(after)
    is_growth = before is None or not keeps_size or replicas > _desired_replicas(before)
    try:
        listed, claims, size = await asyncio.gather(
            session.client.list(BUCKET, QUOTA_NAMESPACE),
            _list_claims(session, () if keeps_use else instances),
            _read_size(session, after, accepts_built_in=keeps_use),
        )
    except (Forbidden, NotFound):
        return _QuotaPreview(["not checked: no permission to read it"])
    amounts = {request.resource_type: request.amount for request in requests_of(size)}
    needed = {kind: 0 if keeps_use else amount * replicas for kind, amount in amounts.items()}
    if before is None:
        needed[WORKLOADS.resource_type] = 1
    held = _held_amounts(claims, instances)
    found = _QuotaPreview()
    used: list[tuple[AllowanceBucket, int]] = []
    for bucket in sorted(listed.items, key=bucket_order):
        kind = bucket.spec.resource_type
        if kind not in needed:
            continue
        if bucket.status == AllowanceBucketStatus():  # the controller has not computed it yet
            found.lines.append(f"{bucket_name(bucket)} not known yet")
            continue
        used.append((bucket, bucket.status.allocated - held.get(kind, 0) + needed[kind]))
    surge = _check_surge_quota(changes, used, amounts, found)
    for bucket, amount in used:
        during = amount + surge * amounts.get(bucket.spec.resource_type, 0)
        line = f"{bucket_name(bucket)} {_share(bucket, amount)}{render_unit(bucket)}"
        if during > amount:
            line += f" ({render_amount(bucket, during)} during the rollout)"
        found.lines.append(line)
        if is_growth and amount > bucket.status.limit:
            found.shortages.append(_shortage(session, bucket, amount))
    return found


def _check_surge_quota(
    changes: InstanceChanges,
    used: Sequence[tuple[AllowanceBucket, int]],
    amounts: Mapping[str, int],
    found: _QuotaPreview,
) -> int:
    """Return how many surge instances the quota allows at the same time.

    Adds a warning to ``found`` if they are too few. ``used`` contains the use of each quota after
    the plan, and ``amounts`` that of one instance.
    """
    needed = room = changes.surge_at_once
    for bucket, amount in used:
        if each := amounts.get(bucket.spec.resource_type, 0):
            room = min(room, max(0, bucket.status.limit - amount) // each)
    if room == needed:
        return needed
    cities = ", ".join(dict.fromkeys(need.city for need in changes.surge))
    if room:
        found.warnings.append(
            f"Warning: The quota has room for {room} of {needed} surge instances. Cities without "
            f"a surge instance are updated without surge (SurgeUnavailable): some of {cities}."
        )
    else:
        found.warnings.append(
            "Warning: The quota has no room for a surge instance. The rollout continues without "
            f"surge (SurgeUnavailable) in {cities}."
        )
        found.interruptions = tuple(i for need in changes.surge for i in need.interruptions)
    return room


def _desired_replicas(workload: Workload) -> int:
    placements = workload.spec.placements
    return sum(len(p.city_codes) * p.scale_settings.min_replicas for p in placements)


def _size_fields(workload: Workload) -> object:
    """Return the fields that determine the size of an instance."""
    runtime = workload.spec.template.spec.runtime
    return runtime.resources, [container.resources for container in runtime.sandbox.containers]


async def _list_claims(session: Session, instances: Sequence[Instance]) -> list[ResourceClaim]:
    if not instances:
        return []
    return (await session.client.list(CLAIM, session.namespace)).items


async def _read_size(
    session: Session, after: Workload, *, accepts_built_in: bool
) -> InstanceSize | None:
    """Return the size of an instance.

    With ``accepts_built_in`` the built-in size of a type is used, which saves a request. It is only
    an estimate, because an operator may have changed the type.
    """
    runtime = after.spec.template.spec.runtime
    size = size_of(runtime, lambda _name: None) if accepts_built_in else explicit_size(runtime)
    if size is not None:
        return size
    types = (await session.client.list(INSTANCE_TYPE)).items
    by_name = {instance_type.metadata.name: instance_type for instance_type in types}
    return size_of(runtime, by_name.get)


def _held_amounts(claims: Iterable[ResourceClaim], instances: Sequence[Instance]) -> dict[str, int]:
    """Return the quota that the claims of these instances hold, by resource."""
    claim_names = {f"instance-{instance.metadata.name}" for instance in instances}
    held: dict[str, int] = {}
    for claim in claims:
        if claim.metadata.name in claim_names and is_granted(claim):
            for request in claim.spec.requests:
                held[request.resource_type] = held.get(request.resource_type, 0) + request.amount
    return held


def _share(bucket: AllowanceBucket, used: int) -> str:
    return f"{render_amount(bucket, used)} of {render_amount(bucket, bucket.status.limit)}"


def _shortage(session: Session, bucket: AllowanceBucket, used: int) -> UsageError:
    missing = render_amount(bucket, used - bucket.status.limit)
    return QuotaError(
        f"The quota of {session.target_name} is too small: {bucket_name(bucket)} would be "
        f"{_share(bucket, used)}{render_unit(bucket)}, {missing} too many.",
        f"See what is used: {session.command('quota')}",
        field=bucket.spec.resource_type,
    )


# --- references


async def _check_references(
    session: Session, after: Workload
) -> tuple[list[str], list[UsageError]]:
    """Return a line for each referenced object, and the references that cannot be resolved."""
    lines: list[str] = []
    missing: list[UsageError] = []
    referenced: dict[tuple[str, str], tuple[set[str], bool, str]] = {}
    for reference in references(after.spec.template):
        source = (reference.kind, reference.name)
        keys, optional, field = referenced.setdefault(source, (set(), True, reference.field))
        keys.update(() if reference.optional else reference.keys)
        referenced[source] = keys, optional and reference.optional, field
    for (kind, name), (keys, optional, field) in sorted(referenced.items()):
        result, problem = await _check_source(session, (kind, name), keys)
        lines.append(f"{kind}/{name} {result}")
        if problem and not optional:
            hint = "Create it first, or deploy without it with --skip-checks."
            path = f"spec.template.{field}"
            missing.append(
                MissingError(f"{path} names {kind}/{name}: {problem}.", hint, field=path)
            )
    return lines, [*missing, *await _check_networks(session, after)]


async def _check_source(
    session: Session, source: tuple[str, str], keys: set[str]
) -> tuple[str, str]:
    """Return the result for the plan, and the problem; empty if there is none."""
    kind, name = source
    info: KindInfo[Any] = SECRET if kind == "Secret" else CONFIG_MAP
    try:
        body = await session.client.get_plain(info, Ref(session.namespace, name))
    except NotFound:
        return "missing", "it does not exist"
    except Forbidden:
        return "not checked", ""
    present = {*(body.get("data") or {}), *(body.get("binaryData") or {})}
    absent = sorted(keys - present)
    if absent:
        return f"without {absent[0]}", f"key {absent[0]!r} is missing"
    return "found", ""


async def _check_networks(session: Session, after: Workload) -> list[UsageError]:
    missing: list[UsageError] = []
    for index, interface in enumerate(after.spec.template.spec.network_interfaces):
        network = interface.network
        ref = Ref(network.namespace or session.namespace, network.name)
        try:
            await session.client.get_plain(NETWORK, ref)
        except NotFound:
            path = f"spec.template.spec.networkInterfaces[{index}].network"
            missing.append(
                MissingError(
                    f"{path} names {network.name!r}: there is no such network.", field=path
                )
            )
        except Forbidden:
            continue
    return missing
