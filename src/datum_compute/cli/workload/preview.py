"""What a plan comes to before it is carried out: instances, quota, what it refers to.

Decided by the platform's own rules (``planning``), from what the project says now. Problems are
things that would keep the workload from running; a deploy stops at them unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import Instance
from datum_compute.api.compute.referenced_data import references
from datum_compute.api.compute.workload import Workload
from datum_compute.api.conditions import FALSE, Condition, Reason, find_condition
from datum_compute.api.errors import Forbidden, NotFound
from datum_compute.api.kinds import (
    BUCKET,
    CLAIM,
    CONFIG_MAP,
    INSTANCE_TYPE,
    LOCATION_BINDING,
    NETWORK,
    SECRET,
)
from datum_compute.api.meta.codec import JsonObject, from_json
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
from datum_compute.cli.commands.quota import bucket_name, bucket_order, shown_amount, shown_unit
from datum_compute.cli.connect.session import Session
from datum_compute.cli.errors import MissingError, QuotaError, UsageError
from datum_compute.cli.render.output import one_line, render_count
from datum_compute.cli.workload.image_check import checked_images
from datum_compute.cli.workload.observe import Observed, observe
from datum_compute.cli.workload.plan import Plan
from datum_compute.cli.workload.rollout import place_of
from datum_compute.planning.quota.claims import is_granted, requests_of, size_of
from datum_compute.planning.rollout.slots import slots_of, unavailable_max
from datum_compute.planning.workload.deployments import desired_deployments
from datum_compute.planning.workload.templates import template_hash

# --- Cities that a change would go to and that do not take it now: drained, or not answering


async def city_warnings(session: Session, after: Workload, observed: Observed) -> list[str]:
    """One for each city of the workload that is closed to it. What runs in a drained city stays and
    is changed there, so only what would be new is warned of."""
    closed = await _closed(session)
    present = {normalize_city(d.spec.city_code) for d in observed.deployments.items}
    named = [normalize_city(city) for p in after.spec.placements for city in p.city_codes]
    warnings = []
    for city in dict.fromkeys(named):
        said = closed.get(city)
        if said is None or (said.reason == Reason.CELL_DRAINED and city in present):
            continue
        why = one_line(said.message).rstrip(".")
        warnings.append(f"Warning: {city} cannot be used now, and is waited for: {why}")
    return warnings


async def _closed(session: Session) -> dict[str, Condition]:
    """What those say that cannot be used; a city with one that can is open."""
    try:
        bindings = (await session.client.list(LOCATION_BINDING)).items
    except (Forbidden, NotFound):
        return {}
    closed: dict[str, Condition] = {}
    opened: set[str] = set()
    for binding in bindings:
        city = normalize_city(city_of(binding))
        said = find_condition(binding.status.conditions, "Available")
        if said is not None and said.status == FALSE:
            closed.setdefault(city, said)
        else:
            opened.add(city)
    return {city: said for city, said in closed.items() if city not in opened}


# --- preview


@dataclass(frozen=True, slots=True)
class InstanceChanges:
    """Names of the instances that are recreated and removed, and how many are created.

    ``cities`` is the number of cities that recreate instances, all at the same time. ``at_once`` is
    how many each of them may recreate at the same time.
    """

    recreated: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    created: int = 0
    cities: int = 0
    at_once: int = 1


@dataclass(frozen=True, slots=True)
class Preview:
    """``problems`` as the errors that they would be; ``warnings`` keep nobody from going on."""

    instances: InstanceChanges = InstanceChanges()
    quota: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    problems: tuple[UsageError, ...] = ()

    def document(self) -> JsonObject:
        return {
            "recreated": list(self.instances.recreated),
            "removed": list(self.instances.removed),
            "created": self.instances.created,
            "quota": list(self.quota),
            "references": list(self.references),
            "images": list(self.images),
            "warnings": list(self.warnings),
            "problems": [problem.message for problem in self.problems],
        }


def preview_lines(preview: Preview) -> list[str]:
    lines, changes = [], preview.instances
    if changes.recreated:
        many = render_count(len(changes.recreated), "instance")
        lines.append(f"Recreates {many}, {_pace(changes)}: {_some(changes.recreated)}")
    if changes.removed:
        many = render_count(len(changes.removed), "instance")
        lines.append(f"Removes {many}: {_some(changes.removed)}")
    if changes.created:
        lines.append(f"Creates {render_count(changes.created, 'instance')}")
    for title, said in (("Quota", preview.quota), ("Refers to", preview.references)):
        if said:
            lines.append(f"{title}: {', '.join(said)}")
    lines += [f"Image {image}" for image in preview.images]
    return [*lines, *preview.warnings]


def _pace(changes: InstanceChanges) -> str:
    pace = "one at a time" if changes.at_once == 1 else f"up to {changes.at_once} at a time"
    return pace if changes.cities == 1 else f"{pace} in each of {changes.cities} cities"


def _some(names: Sequence[str], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


async def preview_plan(session: Session, plan: Plan) -> Preview:
    """Empty for a plan that changes nothing."""
    if plan.action == "unchanged":
        return Preview()
    after = from_json(plan.outcome, Workload)
    observed = await observe(session, plan.name, after.metadata.uid)
    changes = _instance_changes(after, observed.deployments.items, observed.instances.items)
    quota, shortages = await _quota(session, after, observed.instances.items, plan)
    found, missing = await _references(session, after)
    images, refused = await checked_images(session, after)
    return Preview(
        changes,
        quota=tuple(quota),
        references=tuple(found),
        images=tuple(images),
        warnings=(*_paused(session, after), *await city_warnings(session, after, observed)),
        problems=(*shortages, *missing, *refused),
    )


def _paused(session: Session, after: Workload) -> Iterator[str]:
    if after.spec.paused:
        resume = session.command("rollout", "resume", after.metadata.name)
        yield f"Paused: nothing is replaced until it is resumed: {resume}"


# --- instances


def _instance_changes(
    after: Workload, deployments: Sequence[WorkloadDeployment], instances: Sequence[Instance]
) -> InstanceChanges:
    recreated: list[str] = []
    created, kept, cities, at_once = 0, set(), set(), 1
    before = {d.metadata.name: d for d in deployments}
    for wanted in desired_deployments(after):
        name, minimum = wanted.metadata.name, wanted.spec.scale_settings.min_replicas
        held = slots_of(name, [i for i in instances if _is_named(i, name)]).by_ordinal
        kept |= {i.metadata.name for number, i in held.items() if number < minimum}
        created += sum(number not in held for number in range(minimum))
        present = before.get(name)
        if present is not None and not wanted.spec.paused and _is_rolled(present, wanted):
            numbers = sorted((n for n in held if n < minimum), reverse=True)
            recreated += [held[number].metadata.name for number in numbers]
            if numbers:
                cities.add(wanted.spec.city_code)
                at_once = max(at_once, unavailable_max(wanted.spec.scale_settings, minimum))
    going = sorted(
        (place_of(i), i.metadata.name)
        for i in instances
        if not i.is_terminating and i.metadata.name not in kept
    )
    removed = tuple(name for _, name in going)
    return InstanceChanges(tuple(recreated), removed, created, len(cities), at_once)


def _is_named(instance: Instance, deployment: str) -> bool:
    return deployment_of(instance.metadata.name, instance.metadata.labels) == deployment


def _is_rolled(present: WorkloadDeployment, wanted: WorkloadDeployment) -> bool:
    return template_hash(present.spec.template) != template_hash(wanted.spec.template)


# --- quota


async def _quota(
    session: Session, after: Workload, instances: Sequence[Instance], plan: Plan
) -> tuple[list[str], list[UsageError]]:
    """Per resource: what would be used of what may be used; and what it lacks."""
    try:
        buckets = (await session.client.list(BUCKET, QUOTA_NAMESPACE)).items
        claims = (await session.client.list(CLAIM, session.namespace)).items
        types = (await session.client.list(INSTANCE_TYPE)).items
    except (Forbidden, NotFound):
        return ["not checked: no right to read it"], []
    size = size_of(after.spec.template.spec.runtime, {t.metadata.name: t for t in types}.get)
    replicas = sum(len(p.city_codes) * p.scale_settings.min_replicas for p in after.spec.placements)
    needed = {r.resource_type: r.amount * replicas for r in requests_of(size)}
    if plan.observed is None:
        needed[WORKLOADS.resource_type] = 1
    held = _held(claims, instances)
    said, lacking = [], []
    for bucket in sorted(buckets, key=bucket_order):
        kind = bucket.spec.resource_type
        if kind not in needed:
            continue
        if bucket.status == AllowanceBucketStatus():  # nobody has added it up yet
            said.append(f"{bucket_name(bucket)} not known yet")
            continue
        used = bucket.status.allocated - held.get(kind, 0) + needed[kind]
        said.append(f"{bucket_name(bucket)} {_share(bucket, used)}{shown_unit(bucket)}")
        if used > bucket.status.limit:
            lacking.append(_shortage(session, bucket, used))
    return said, lacking


def _held(claims: Iterable[ResourceClaim], instances: Sequence[Instance]) -> dict[str, int]:
    """What the instances that stand hold already, by resource."""
    names = {f"instance-{instance.metadata.name}" for instance in instances}
    held: dict[str, int] = {}
    for claim in claims:
        if claim.metadata.name in names and is_granted(claim):
            for request in claim.spec.requests:
                held[request.resource_type] = held.get(request.resource_type, 0) + request.amount
    return held


def _share(bucket: AllowanceBucket, used: int) -> str:
    return f"{shown_amount(bucket, used)} of {shown_amount(bucket, bucket.status.limit)}"


def _shortage(session: Session, bucket: AllowanceBucket, used: int) -> UsageError:
    lacking = shown_amount(bucket, used - bucket.status.limit)
    return QuotaError(
        f"The quota of {session.target_name} is too small: {bucket_name(bucket)} would be "
        f"{_share(bucket, used)}{shown_unit(bucket)}, {lacking} too many.",
        f"See what is used: {session.command('quota')}",
        field=bucket.spec.resource_type,
    )


# --- references


async def _references(session: Session, after: Workload) -> tuple[list[str], list[UsageError]]:
    found: list[str] = []
    missing: list[UsageError] = []
    wanted: dict[tuple[str, str], tuple[set[str], bool, str]] = {}
    for reference in references(after.spec.template):
        keys, optional, field = wanted.setdefault(
            (reference.kind, reference.name), (set(), True, reference.field)
        )
        keys.update(() if reference.optional else reference.keys)
        wanted[reference.kind, reference.name] = keys, optional and reference.optional, field
    for (kind, name), (keys, optional, field) in sorted(wanted.items()):
        text, problem = await _source(session, (kind, name), keys)
        found.append(f"{kind}/{name} {text}")
        if problem and not optional:
            hint = "Create it first, or deploy all the same with --skip-checks."
            path = f"spec.template.{field}"
            missing.append(
                MissingError(f"{path} names {kind}/{name}: {problem}.", hint, field=path)
            )
    return found, [*missing, *await _networks(session, after)]


async def _source(session: Session, source: tuple[str, str], keys: set[str]) -> tuple[str, str]:
    kind, name = source
    info: KindInfo[Any] = SECRET if kind == "Secret" else CONFIG_MAP
    try:
        body = await session.client.get_plain(info, Ref(session.namespace, name))
    except NotFound:
        return "missing", "there is none"
    except Forbidden:
        return "not checked", ""
    held = {*(body.get("data") or {}), *(body.get("binaryData") or {})}
    lacking = sorted(keys - held)
    if lacking:
        return f"without {lacking[0]}", f"it has no key {lacking[0]!r}"
    return "found", ""


async def _networks(session: Session, after: Workload) -> list[UsageError]:
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
