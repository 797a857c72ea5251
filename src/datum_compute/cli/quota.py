"""``quota``: what the project uses of each resource, what it may use, and who waits for more."""

from __future__ import annotations

from collections.abc import Sequence

import click

from datum_compute.api.allowancebucket import AllowanceBucket
from datum_compute.api.codec import JsonObject
from datum_compute.api.conditions import FALSE, find_condition
from datum_compute.api.instance import QUOTA_GRANTED, Instance
from datum_compute.api.kinds import BUCKET, INSTANCE
from datum_compute.api.quotametrics import METRICS, QUOTA_NAMESPACE, QuotaMetric
from datum_compute.cli.listing import Column, Listing, list_options, print_listing
from datum_compute.cli.options import connection_options
from datum_compute.cli.output import one_line
from datum_compute.cli.rollout import place_of
from datum_compute.cli.session import Session, run_in_session

_BAR = 20
_BY_TYPE = {metric.resource_type: metric for metric in METRICS}


@click.command(short_help="Show what the project uses and what it may use.")
@click.option("--constrained", is_flag=True, help="Only what is used up.")
@list_options
@connection_options
@click.pass_context
def quota(ctx: click.Context, constrained: bool, output_format: str, no_headers: bool) -> None:
    """Show what the project uses of each resource and what it may use at most.

    Instances that wait for quota are named below the table, with the message they have.

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
            session.output.note(f"{what} in {session.place}.")
        rows = sorted(rows, key=_order)
        print_listing(session.output, LISTING, rows, output_format, headers=not no_headers)
        if output_format in ("table", "wide"):
            _say_who_waits(session, (await session.client.list(INSTANCE, session.namespace)).items)

    run_in_session(ctx, body)


def _say_who_waits(session: Session, instances: Sequence[Instance]) -> None:
    for instance in instances:
        said = find_condition(instance.status.conditions, QUOTA_GRANTED)
        if said is not None and said.status == FALSE:
            where, name = place_of(instance).city, instance.metadata.name
            session.output.note(f"{where}: {name} waits for quota: {one_line(said.message)}")


def _order(bucket: AllowanceBucket) -> tuple[int, str]:
    """As the service lists its metrics; what others count comes after, by name."""
    types = list(_BY_TYPE)
    resource_type = bucket.spec.resource_type
    known = resource_type in _BY_TYPE
    return (types.index(resource_type) if known else len(types), resource_type)


def _metric(bucket: AllowanceBucket) -> QuotaMetric | None:
    return _BY_TYPE.get(bucket.spec.resource_type)


def _amount(bucket: AllowanceBucket, base_units: int) -> str:
    """In the unit people know: exact, so that a sliver that is left does not look like none."""
    metric = _metric(bucket)
    return f"{base_units / (metric.factor if metric else 1):.3f}".rstrip("0").rstrip(".")


def _unit(bucket: AllowanceBucket) -> str:
    metric = _metric(bucket)
    return metric.display_unit if metric and metric.display_unit != "1" else "-"


def _name(bucket: AllowanceBucket) -> str:
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
        "resource": _name(bucket),
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
        Column("RESOURCE", _name),
        Column("UNIT", _unit),
        Column("LIMIT", lambda b: _amount(b, b.status.limit)),
        Column("USED", lambda b: _amount(b, b.status.allocated)),
        Column("AVAILABLE", lambda b: _amount(b, b.status.available)),
        Column("USAGE", _usage),
        Column("CLAIMS", lambda b: b.status.claim_count, wide=True),
    ),
    document=_document,
    name=_name,
)

COMMAND = quota
