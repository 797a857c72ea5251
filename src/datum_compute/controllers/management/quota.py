"""Claims and grants of a project -> who gets what. One key for each project, so that its claims
are decided one pass after the other and never two passes at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api.kinds import BUCKET, CLAIM, GRANT, REGISTRATION
from datum_compute.api.meta import Ref
from datum_compute.api.plane import PLATFORM, member_name
from datum_compute.api.quotametrics import QUOTA_NAMESPACE, consumer_of
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.quota import (
    Books,
    active_registrations,
    plan_buckets,
    plan_decisions,
)
from datum_compute.runtime.controller import Controller, reads, watches
from datum_compute.runtime.informer import Change
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Outcome
from datum_compute.runtime.view import View

THE_PROJECT = Ref("", "quota")


async def reconcile(context: Context, key: Key) -> Outcome:
    view = context.planes.need(key.plane)
    plan = plan_decisions(key.plane, _books(context, view), context.now())
    outcome = await carry_out(context.planes, plan)
    # Read again: buckets show what is on record, not what was about to be.
    buckets = {b.metadata.name: b for b in view.read(BUCKET).in_namespace(QUOTA_NAMESPACE)}
    shown = plan_buckets(key.plane, _books(context, view), buckets, context.now())
    await carry_out(context.planes, shown)
    return outcome


def _books(context: Context, view: View) -> Books:
    registrations = context.planes.need(PLATFORM).read(REGISTRATION).all()
    return Books(
        consumer=consumer_of(member_name(view.plane)),
        registered=active_registrations(registrations),
        grants=view.read(GRANT).all(),
        claims=view.read(CLAIM).all(),
    )


def to_project(view: View, change: Change[Any]) -> Iterable[Key]:
    """Everything but a new status: that is our own, or changes nothing."""
    old, new = change.old, change.new
    if old is None or new is None or old.metadata.generation != new.metadata.generation:
        yield Key(view.plane, THE_PROJECT)


CONTROLLER = Controller(
    name="quota",
    role="project",
    reconcile=reconcile,
    edges=(
        watches(CLAIM, to_project),
        watches(GRANT, to_project),
        watches(BUCKET, to_project),
        reads(REGISTRATION, on="platform"),
    ),
)
