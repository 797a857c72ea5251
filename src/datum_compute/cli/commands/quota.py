"""``quota``: usage and limit of each resource of the project, and instances that wait for quota."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click

from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import QUOTA_GRANTED, Instance
from datum_compute.api.conditions import TRUE, Condition, find_condition
from datum_compute.api.errors import Forbidden
from datum_compute.api.kinds import BUCKET, DEPLOYMENT, INSTANCE
from datum_compute.api.labels import CITY_CODE, INSTANCE_INDEX
from datum_compute.api.meta.objects import ref_of
from datum_compute.api.meta.quantity import mebibytes, millicores
from datum_compute.api.planes import deployment_of, normalize_city
from datum_compute.api.quota import (
    MEMORY,
    METRICS,
    QUOTA_NAMESPACE,
    VCPUS,
    AllowanceBucket,
    QuotaMetric,
)
from datum_compute.cli.completion import city_names
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.options import connection_options
from datum_compute.cli.render.documents import CityQuota, QuotaEntry, QuotaSummary, WaitingInstance
from datum_compute.cli.render.listing import ListColumn, Listing, list_options, print_listing
from datum_compute.cli.render.output import one_line
from datum_compute.cli.workload.access import print_missing_access
from datum_compute.cli.workload.observe import UNKNOWN
from datum_compute.planning.rollout.gates import find_quota_denial

_BAR_CHARACTERS = 20
_BY_TYPE = {metric.resource_type: metric for metric in METRICS}


@click.command(short_help="Show the usage and limits of the project.")
@click.option("--city", metavar="CODE", help="Show only this city.", shell_complete=city_names)
@click.option(
    "--constrained",
    is_flag=True,
    help="Show only resources at their limit, and cities with instances that wait.",
)
@list_options
@connection_options
@click.pass_context
def quota(
    ctx: click.Context,
    city: str | None,
    constrained: bool,
    output_format: str,
    no_headers: bool,
) -> None:
    """Show the usage and limit of each resource of the project. Below that, show for each city
    what its instances use, and how many desired instances wait for quota, over all namespaces.

    \b
    Examples:
      datumctl compute quota
      datumctl compute quota --city=DFW
      datumctl compute quota --constrained -o json
    """

    async def body(session: Session) -> None:
        has_no_access = await print_missing_access(session)
        buckets = (await session.client.list(BUCKET, QUOTA_NAMESPACE)).items
        rows = [b for b in buckets if not (constrained and b.status.available > 0)]
        if not rows and not has_no_access:
            what = "No resource is at its limit" if buckets else "No usage is recorded yet"
            session.output.note(f"{what} in {session.target_name}.")
        cities = [
            use
            for use in usage_by_city(*await _read_use(session))
            if city is None or use.city == normalize_city(city)
            if use.waiting or not constrained
        ]
        if city is not None and not cities and not has_no_access:
            wait = " that wait for quota" if constrained else ""
            session.output.note(f"No instances{wait} in {normalize_city(city)}.")
        print_listing(
            session.output,
            LISTING,
            sorted(rows, key=bucket_order),
            output_format,
            headers=not no_headers,
            summary=QuotaSummary(cities=[_city_document(use) for use in cities]),
        )
        if output_format in ("table", "wide") and cities:
            _print_cities(session, cities)

    run_in_session(ctx, body)


async def _read_use(session: Session) -> tuple[list[Instance], list[WorkloadDeployment]]:
    """Read the instances and deployments of all namespaces, because quota applies to the project.

    Without permission for this, only the current namespace is read.
    """
    try:
        instances = (await session.client.list(INSTANCE)).items
        return instances, (await session.client.list(DEPLOYMENT)).items
    except Forbidden:
        namespace = session.namespace
        session.output.note(f"Cities show only the instances in namespace {namespace}.")
        instances = (await session.client.list(INSTANCE, namespace)).items
        return instances, (await session.client.list(DEPLOYMENT, namespace)).items


@dataclass(frozen=True, slots=True)
class CityUse:
    """What the instances of a city use.

    ``granted`` counts the instances that have quota, and ``millicores`` and ``mebibytes`` are the
    sums of their sizes. ``waiting`` counts the desired instances without quota, created or not.
    ``denied`` names the created ones, each with the condition that states why.
    """

    city: str
    granted: int
    millicores: int
    mebibytes: int
    waiting: int
    denied: list[tuple[str, Condition]]


def usage_by_city(
    instances: Sequence[Instance], deployments: Sequence[WorkloadDeployment]
) -> list[CityUse]:
    """Return the use of each city that has instances or deployments, ordered by city."""
    deployments = [d for d in deployments if not d.is_terminating]
    by_owner: dict[tuple[str, str], list[Instance]] = {}
    for instance in instances:
        metadata = instance.metadata
        owner = deployment_of(metadata.name, metadata.labels)
        by_owner.setdefault((metadata.namespace, owner), []).append(instance)
    waiting: dict[str, int] = {}
    for deployment in deployments:
        metadata, desired = deployment.metadata, deployment.spec.scale_settings.min_replicas
        own = by_owner.get((metadata.namespace, metadata.name), [])
        # A surge instance has quota as well, but an ordinal above those of desired instances.
        granted = sum(_has_quota(i) and _ordinal(i) < desired for i in own)
        city = deployment.spec.city_code
        waiting[city] = waiting.get(city, 0) + max(0, desired - granted)
    # Instances without a city label are in the city of their deployment.
    city_of = {(d.metadata.namespace, d.metadata.name): d.spec.city_code for d in deployments}
    by_city: dict[str, list[Instance]] = {city: [] for city in waiting}
    for owner_key, own in by_owner.items():
        for instance in own:
            city = instance.metadata.labels.get(CITY_CODE) or city_of.get(owner_key, UNKNOWN)
            by_city.setdefault(city, []).append(instance)
    return [_city_use(city, by_city[city], waiting.get(city, 0)) for city in sorted(by_city)]


def _city_use(city: str, instances: Sequence[Instance], waiting: int) -> CityUse:
    granted = [instance for instance in instances if _has_quota(instance)]
    sizes = [instance.status.resources for instance in granted]
    denied = [
        (instance.metadata.name, condition)
        for instance in sorted(instances, key=ref_of)
        if (condition := find_quota_denial(instance.status.conditions)) is not None
    ]
    return CityUse(
        city,
        len(granted),
        sum(millicores(size.cpu) for size in sizes if size.cpu is not None),
        sum(mebibytes(size.memory) for size in sizes if size.memory is not None),
        waiting,
        denied,
    )


def _has_quota(instance: Instance) -> bool:
    condition = find_condition(instance.status.conditions, QUOTA_GRANTED)
    return condition is not None and condition.status == TRUE


def _ordinal(instance: Instance) -> int:
    metadata = instance.metadata
    number = metadata.labels.get(INSTANCE_INDEX) or metadata.name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def _city_document(use: CityUse) -> CityQuota:
    denied = [
        WaitingInstance(instance=name, reason=condition.reason, message=condition.message)
        for name, condition in use.denied
    ]
    return CityQuota(
        city=use.city,
        granted=use.granted,
        millicores=use.millicores,
        mebibytes=use.mebibytes,
        waiting_replicas=use.waiting,
        waiting=denied,
    )


def _print_cities(session: Session, cities: Sequence[CityUse]) -> None:
    rows = [
        (
            use.city,
            use.granted,
            f"{use.millicores / VCPUS.factor:g}",
            f"{use.mebibytes / MEMORY.factor:g} {MEMORY.display_unit}",
            use.waiting,
        )
        for use in cities
    ]
    session.output.data("")
    headings = ("CITY", "INSTANCES", "VCPUS", "MEMORY", "WAITING")
    session.output.data(session.output.table(headings, rows))
    for use in cities:
        for name, condition in use.denied:
            text = f"{name} in {use.city} waits for quota: {one_line(condition.message)}"
            session.output.note(text)


def bucket_order(bucket: AllowanceBucket) -> tuple[int, str]:
    """Sort by the order of the service's metrics, then other resources by name."""
    types = list(_BY_TYPE)
    resource_type = bucket.spec.resource_type
    known = resource_type in _BY_TYPE
    return (types.index(resource_type) if known else len(types), resource_type)


def _metric(bucket: AllowanceBucket) -> QuotaMetric | None:
    return _BY_TYPE.get(bucket.spec.resource_type)


def render_amount(bucket: AllowanceBucket, base_units: int) -> str:
    """Return an amount in the display unit, with up to three decimals."""
    metric = _metric(bucket)
    return f"{base_units / (metric.factor if metric else 1):.3f}".rstrip("0").rstrip(".")


def _unit(bucket: AllowanceBucket) -> str:
    metric = _metric(bucket)
    return metric.display_unit if metric and metric.display_unit != "1" else "-"


def render_unit(bucket: AllowanceBucket) -> str:
    """Return the unit after an amount; empty if the name of the resource implies it (vcpus)."""
    unit = _unit(bucket)
    implied = unit == "-" or bucket_name(bucket).lower().startswith(unit.lower())
    return "" if implied else f" {unit}"


def bucket_name(bucket: AllowanceBucket) -> str:
    metric = _metric(bucket)
    return metric.name if metric else bucket.spec.resource_type


def _usage(bucket: AllowanceBucket) -> str:
    limit, used = bucket.status.limit, bucket.status.allocated
    share = min(1.0, used / limit) if limit else 1.0
    filled = round(share * _BAR_CHARACTERS)
    return f"[{'#' * filled}{'.' * (_BAR_CHARACTERS - filled)}] {share:.0%}"


def _document(bucket: AllowanceBucket) -> QuotaEntry:
    status, metric = bucket.status, _metric(bucket)
    return QuotaEntry(
        resource=bucket_name(bucket),
        resource_type=bucket.spec.resource_type,
        unit=metric.base_unit if metric else "",
        limit=status.limit,
        used=status.allocated,
        available=status.available,
        claims=status.claim_count,
    )


LISTING: Listing[AllowanceBucket] = Listing(
    noun="quota",
    columns=(
        ListColumn("RESOURCE", bucket_name),
        ListColumn("UNIT", _unit),
        ListColumn("LIMIT", lambda bucket: render_amount(bucket, bucket.status.limit)),
        ListColumn("USED", lambda bucket: render_amount(bucket, bucket.status.allocated)),
        ListColumn("AVAILABLE", lambda bucket: render_amount(bucket, bucket.status.available)),
        ListColumn("USAGE", _usage),
        ListColumn("CLAIMS", lambda bucket: bucket.status.claim_count, wide=True),
    ),
    document=_document,
    name=bucket_name,
)

COMMAND = quota
