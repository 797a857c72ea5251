"""``quota``: usage and limit of each resource of the project, and instances that wait for quota."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import click

from datum_compute.api.compute.instance import QUOTA_GRANTED
from datum_compute.api.conditions import FALSE, Condition, find_condition
from datum_compute.api.errors import Forbidden
from datum_compute.api.kinds import BUCKET, INSTANCE
from datum_compute.api.quota import METRICS, QUOTA_NAMESPACE, AllowanceBucket, QuotaMetric
from datum_compute.cli.commands.instances import InstanceRow, resolve_owners
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.options import connection_options
from datum_compute.cli.render.documents import CityQuota, QuotaEntry, QuotaSummary, WaitingInstance
from datum_compute.cli.render.listing import ListColumn, Listing, list_options, print_listing
from datum_compute.cli.render.output import one_line

_BAR = 20
_BY_TYPE = {metric.resource_type: metric for metric in METRICS}


@click.command(short_help="Show the usage and limits of the project.")
@click.option("--constrained", is_flag=True, help="Show only resources at their limit.")
@list_options
@connection_options
@click.pass_context
def quota(ctx: click.Context, constrained: bool, output_format: str, no_headers: bool) -> None:
    """Show the usage and limit of each resource of the project. Below that, show for each city
    how many instances have their quota and how many wait for it, over all namespaces.

    \b
    Examples:
      datumctl compute quota
      datumctl compute quota --constrained -o json
    """

    async def body(session: Session) -> None:
        buckets = (await session.client.list(BUCKET, QUOTA_NAMESPACE)).items
        rows = [b for b in buckets if not (constrained and b.status.available > 0)]
        if not rows:
            what = "No resource is at its limit" if buckets else "No usage is recorded yet"
            session.output.note(f"{what} in {session.target_name}.")
        cities = _by_city(await _read_instances(session))
        print_listing(
            session.output,
            LISTING,
            sorted(rows, key=bucket_order),
            output_format,
            headers=not no_headers,
            summary=QuotaSummary(cities=[_city_document(city) for city in cities]),
        )
        if output_format in ("table", "wide") and cities and not constrained:
            _print_cities(session, cities)

    run_in_session(ctx, body)


async def _read_instances(session: Session) -> list[InstanceRow]:
    """Read all namespaces, because quota applies to the project; otherwise only the current one."""
    all_namespaces = replace(session, namespace="")
    try:
        listed = (await all_namespaces.client.list(INSTANCE)).items
    except Forbidden:
        session.output.note(f"Cities show only the instances in namespace {session.namespace}.")
        listed = (await session.client.list(INSTANCE, session.namespace)).items
        return await resolve_owners(session, listed)
    return await resolve_owners(all_namespaces, listed)


@dataclass(frozen=True, slots=True)
class CityUse:
    """The number of instances of a city that have quota, and those that wait for it."""

    city: str
    granted: int
    waiting: list[tuple[str, Condition]]


def _by_city(found: Sequence[InstanceRow]) -> list[CityUse]:
    cities: dict[str, CityUse] = {}
    for row in sorted(found, key=lambda row: (row.place.city, row.name)):
        use = cities.setdefault(row.place.city, CityUse(row.place.city, 0, []))
        condition = find_condition(row.instance.status.conditions, QUOTA_GRANTED)
        if condition is not None and condition.status == FALSE:
            use.waiting.append((row.name, condition))
        else:
            cities[use.city] = replace(use, granted=use.granted + 1)
    return [*cities.values()]


def _city_document(use: CityUse) -> CityQuota:
    waiting = [
        WaitingInstance(instance=name, reason=condition.reason, message=condition.message)
        for name, condition in use.waiting
    ]
    return CityQuota(city=use.city, granted=use.granted, waiting=waiting)


def _print_cities(session: Session, cities: Sequence[CityUse]) -> None:
    rows = [(use.city, use.granted, len(use.waiting)) for use in cities]
    session.output.data("")
    session.output.data(session.output.table(("CITY", "INSTANCES", "WAITING"), rows))
    for use in cities:
        for name, condition in use.waiting:
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
    full = round(share * _BAR)
    return f"[{'#' * full}{'.' * (_BAR - full)}] {share:.0%}"


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
