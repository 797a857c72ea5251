"""``quota``: what the project uses of each resource, what it may use, and who waits for more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import click

from datum_compute.api.compute.instance import QUOTA_GRANTED
from datum_compute.api.conditions import FALSE, Condition, find_condition
from datum_compute.api.errors import Forbidden
from datum_compute.api.kinds import BUCKET, INSTANCE
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.quota import METRICS, QUOTA_NAMESPACE, AllowanceBucket, QuotaMetric
from datum_compute.cli.commands.instances import Found, located
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.options import connection_options
from datum_compute.cli.render.listing import Column, Listing, list_options, print_listing
from datum_compute.cli.render.output import one_line

_BAR = 20
_BY_TYPE = {metric.resource_type: metric for metric in METRICS}


@click.command(short_help="Show what the project uses and what it may use.")
@click.option("--constrained", is_flag=True, help="Only what is used up.")
@list_options
@connection_options
@click.pass_context
def quota(ctx: click.Context, constrained: bool, output_format: str, no_headers: bool) -> None:
    """Show what the project uses of each resource and what it may use at most; below that, city by
    city and in all its namespaces, how many instances have their quota and how many wait for it,
    with the message they have.

    \b
    Examples:
      datumctl compute quota
      datumctl compute quota --constrained -o json
    """

    async def body(session: Session) -> None:
        buckets = (await session.client.list(BUCKET, QUOTA_NAMESPACE)).items
        rows = [b for b in buckets if not (constrained and b.status.available > 0)]
        if not rows:
            what = "Nothing is used up" if buckets else "Nothing is counted yet"
            session.output.note(f"{what} in {session.target_name}.")
        cities = _by_city(await _everywhere(session))
        print_listing(
            session.output,
            LISTING,
            sorted(rows, key=bucket_order),
            output_format,
            headers=not no_headers,
            beside={"cities": [_city_document(city) for city in cities]},
        )
        if output_format in ("table", "wide") and cities and not constrained:
            _print_cities(session, cities)

    run_in_session(ctx, body)


async def _everywhere(session: Session) -> list[Found]:
    """Of every namespace, because the quota is that of the whole project; of ours where nobody may
    see the others."""
    whole = replace(session, namespace="")
    try:
        return await located(whole, (await whole.client.list(INSTANCE)).items)
    except Forbidden:
        listed = (await session.client.list(INSTANCE, session.namespace)).items
        session.output.note(f"By city only what is in namespace {session.namespace}.")
        return await located(session, listed)


@dataclass(frozen=True, slots=True)
class CityUse:
    """What a city uses: instances that have their quota, and those that wait for it."""

    city: str
    granted: int
    waiting: list[tuple[str, Condition]]


def _by_city(found: Sequence[Found]) -> list[CityUse]:
    cities: dict[str, CityUse] = {}
    for row in sorted(found, key=lambda row: (row.place.city, row.name)):
        use = cities.setdefault(row.place.city, CityUse(row.place.city, 0, []))
        said = find_condition(row.instance.status.conditions, QUOTA_GRANTED)
        if said is not None and said.status == FALSE:
            use.waiting.append((row.name, said))
        else:
            cities[use.city] = replace(use, granted=use.granted + 1)
    return [*cities.values()]


def _city_document(use: CityUse) -> JsonObject:
    waiting = [
        {"instance": name, "reason": said.reason, "message": said.message}
        for name, said in use.waiting
    ]
    return {"city": use.city, "granted": use.granted, "waiting": waiting}


def _print_cities(session: Session, cities: Sequence[CityUse]) -> None:
    rows = [
        (use.city, use.granted, len(use.waiting), use.waiting[0][1].message if use.waiting else "-")
        for use in cities
    ]
    session.output.data("")
    session.output.data(session.output.table(("CITY", "INSTANCES", "WAITING", "MESSAGE"), rows))
    for use in cities:
        for name, said in use.waiting:
            text = f"{use.city}: {name} waits for quota: {one_line(said.message)}"
            session.output.note(text)


def bucket_order(bucket: AllowanceBucket) -> tuple[int, str]:
    """As the service lists its metrics; what others count comes after, by name."""
    types = list(_BY_TYPE)
    resource_type = bucket.spec.resource_type
    known = resource_type in _BY_TYPE
    return (types.index(resource_type) if known else len(types), resource_type)


def _metric(bucket: AllowanceBucket) -> QuotaMetric | None:
    return _BY_TYPE.get(bucket.spec.resource_type)


def shown_amount(bucket: AllowanceBucket, base_units: int) -> str:
    """In the unit people know: exact, so that a sliver that is left does not look like none."""
    metric = _metric(bucket)
    return f"{base_units / (metric.factor if metric else 1):.3f}".rstrip("0").rstrip(".")


def _unit(bucket: AllowanceBucket) -> str:
    metric = _metric(bucket)
    return metric.display_unit if metric and metric.display_unit != "1" else "-"


def shown_unit(bucket: AllowanceBucket) -> str:
    """After an amount, where the name of the resource does not say it: memory, not vcpus."""
    unit = _unit(bucket)
    said = unit == "-" or bucket_name(bucket).lower().startswith(unit.lower())
    return "" if said else f" {unit}"


def bucket_name(bucket: AllowanceBucket) -> str:
    metric = _metric(bucket)
    return metric.name if metric else bucket.spec.resource_type


def _usage(bucket: AllowanceBucket) -> str:
    limit, used = bucket.status.limit, bucket.status.allocated
    share = min(1.0, used / limit) if limit else 1.0
    full = round(share * _BAR)
    return f"[{'#' * full}{'.' * (_BAR - full)}] {share:.0%}"


def _document(bucket: AllowanceBucket) -> JsonObject:
    status, metric = bucket.status, _metric(bucket)
    return {
        "resource": bucket_name(bucket),
        "resourceType": bucket.spec.resource_type,
        "unit": metric.base_unit if metric else "",
        "limit": status.limit,
        "used": status.allocated,
        "available": status.available,
        "claims": status.claim_count,
    }


LISTING: Listing[AllowanceBucket] = Listing(
    noun="quota",
    columns=(
        Column("RESOURCE", bucket_name),
        Column("UNIT", _unit),
        Column("LIMIT", lambda b: shown_amount(b, b.status.limit)),
        Column("USED", lambda b: shown_amount(b, b.status.allocated)),
        Column("AVAILABLE", lambda b: shown_amount(b, b.status.available)),
        Column("USAGE", _usage),
        Column("CLAIMS", lambda b: b.status.claim_count, wide=True),
    ),
    document=_document,
    name=bucket_name,
)

COMMAND = quota
