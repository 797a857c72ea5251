"""``destroy``: delete a workload, and wait until all its objects are gone from the project."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import click

from datum_compute.api.compute.workload import Workload
from datum_compute.api.conditions import Reason
from datum_compute.api.errors import ApiError, NotFound
from datum_compute.api.events import DELETION_UNCONFIRMED, Event
from datum_compute.api.kinds import DEPLOYMENT, EVENT, INSTANCE, WORKLOAD
from datum_compute.api.meta.objects import ApiObject, KindInfo, Ref
from datum_compute.cli.arguments import workload_argument
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.errors import StoppedError, TimedOutError
from datum_compute.cli.options import connection_options, output_option, wait_options, yes_option
from datum_compute.cli.render.events import (
    AppliedEvent,
    DeletedEvent,
    PlanEvent,
    RemovingEvent,
    UnconfirmedEvent,
)
from datum_compute.cli.render.output import render_age, render_count
from datum_compute.cli.render.prompt import check_confirmation, confirm, confirm_name
from datum_compute.cli.workload.observe import Observed, belongs_to, find_workload, observe
from datum_compute.cli.workload.wait import StateReached, WatchNext, wait_until


@dataclass(frozen=True, slots=True)
class Settings:
    """``timeout_s`` None: do not wait."""

    yes: bool
    confirm: str | None
    timeout_s: int | None


@click.command(short_help="Delete a workload and wait until it is gone.")
@workload_argument
@yes_option
@click.option("--confirm", metavar="NAME", help="Like --yes, but only if the workload is NAME.")
@wait_options(default="5m")
@output_option("table", "json")
@connection_options
@click.pass_context
def destroy(
    ctx: click.Context,
    name: str,
    yes: bool,
    confirm: str | None,
    wait: bool,
    timeout_s: int,
    output_format: str,
) -> None:
    """Delete the workload NAME with all its instances, and wait until it is gone.

    If instances are ready, the prompt requires the name of the workload. --confirm=NAME and -y
    skip the prompt.

    \b
    Examples:
      datumctl compute destroy web
      datumctl compute destroy web --confirm=web --no-wait
    """
    settings = Settings(yes, confirm, timeout_s if wait else None)
    run_in_session(
        ctx,
        lambda session: _destroy(session, name, settings),
        as_json=output_format == "json",
    )


async def _destroy(session: Session, name: str, settings: Settings) -> None:
    workload = await find_workload(session, name)
    session.emit_event(
        PlanEvent(
            workload=name,
            place=session.target_name,
            action="deleted",
            changes=[],
            removals=_cities(workload),
        ),
        _summary(session, workload),
    )
    if not check_confirmation(settings.confirm, name) and not settings.yes:
        _confirm_deletion(session, workload)
    uid = workload.metadata.uid
    if not workload.is_terminating:
        with suppress(NotFound):  # deleted by another client in the meantime
            await session.client.delete(WORKLOAD, Ref(session.namespace, name), uid=uid)
    session.emit_event(
        AppliedEvent(workload=name, place=session.target_name, action="deleted", uid=uid)
    )
    if settings.timeout_s is None:
        _print_result(session, f"workload/{name} is being deleted")
        return
    parts = await wait_until_gone(session, name, uid, timeout_s=settings.timeout_s)
    is_expected = bool(_unreachable_messages(workload))
    for message in await _read_unconfirmed(session, parts, is_expected=is_expected):
        session.emit_event(
            UnconfirmedEvent(message=message), f"Not confirmed: {message.rstrip('.')}."
        )
    session.emit_event(DeletedEvent(workload=name, place=session.target_name, uid=uid))
    _print_result(session, f"workload/{name} deleted")


async def _read_unconfirmed(session: Session, parts: Set[str], *, is_expected: bool) -> list[str]:
    """Return the messages about deletions that an unreachable cell has not confirmed.

    Their instances may still run there. An event is written shortly after the deletion, so wait for
    it if one is expected.
    """

    async def poll() -> StateReached[list[str]] | WatchNext:
        listed = await session.client.list(
            EVENT, session.namespace, fields={"reason": DELETION_UNCONFIRMED}
        )
        messages = {e.message for e in listed.items if e.involved_object.uid in parts}
        if messages:
            return StateReached(sorted(messages))
        return WatchNext(EVENT, listed.version, _is_unconfirmed)

    patience_s = session.environment.timeouts.final_status_s if is_expected else 0.0
    try:
        return await wait_until(session, poll, timeout_s=patience_s)
    except (ApiError, TimeoutError):
        return []  # the workload is deleted in any case


def _is_unconfirmed(event: ApiObject) -> bool:
    return isinstance(event, Event) and event.reason == DELETION_UNCONFIRMED


def _confirm_deletion(session: Session, workload: Workload) -> None:
    name = workload.metadata.name
    question = (
        f"Delete workload {name} from {session.target_name} ({', '.join(_cities(workload))})?"
    )
    if workload.status.ready_replicas and not workload.is_terminating:
        confirm_name(session.environment, f"{question} It has ready instances.", name)
    else:
        confirm(session.environment, question, confirm_flag=f"--confirm={name}")


def _print_result(session: Session, text: str) -> None:
    if not session.as_json:
        session.output.data(text)


def _cities(workload: Workload) -> list[str]:
    return list(dict.fromkeys(city for p in workload.spec.placements for city in p.city_codes))


def _instances(workload: Workload) -> int:
    """Return the number of instances, at least those of the spec: the status may be older."""
    placements = () if workload.is_terminating else workload.spec.placements
    asked_for = sum(len(p.city_codes) * p.scale_settings.min_replicas for p in placements)
    return max(workload.status.replicas, asked_for)


def _summary(session: Session, workload: Workload) -> str:
    instances = render_count(_instances(workload), "instance")
    cities = ", ".join(_cities(workload))
    text = f"Workload {workload.metadata.name} in {session.target_name}: {instances} in {cities}."
    for message in _unreachable_messages(workload):
        text += f" {message}: its instances stop when the cell is reachable again."
    return text + (" It is already being deleted." if workload.is_terminating else "")


def _unreachable_messages(workload: Workload) -> list[str]:
    blocked = workload.status.blocked
    return [b.message for b in blocked if b.reason == Reason.CELL_UNREACHABLE]


@dataclass(slots=True)
class RemovalWatch:
    """The deletion of a workload, identified by uid: its name may be in use again.

    ``parts`` are the uids of its deployments.
    """

    session: Session
    name: str
    uid: str
    latest: str = ""
    parts: set[str] = field(default_factory=set)

    async def poll(self) -> StateReached[None] | WatchNext:
        observed = await observe(self.session, self.name, self.uid)
        self.parts.update(d.metadata.uid for d in observed.deployments.items)
        remaining = _count_remaining(observed)
        if not remaining:
            return StateReached(None)
        text = ", ".join(remaining)
        if text != self.latest:
            self.session.emit_event(RemovingEvent(left=remaining), f"Remaining: {text}")
        self.latest = text
        return self._next_watch(observed)

    def _next_watch(self, observed: Observed) -> WatchNext:
        """Watch the kind that is deleted next: instances, then deployments, then the workload."""
        uid = self.uid
        kind: KindInfo[Any] = WORKLOAD
        since = observed.deployments.version  # one counter for the whole plane
        if observed.instances.items:
            kind, since = INSTANCE, observed.instances.version
        elif observed.deployments.items:
            kind = DEPLOYMENT
        return WatchNext(kind, since, lambda obj: belongs_to(obj, uid))


async def wait_until_gone(
    session: Session,
    name: str,
    uid: str,
    *,
    timeout_s: float,
) -> Set[str]:
    """Wait for the deletion. Return the uids of the deployments that were deleted."""
    watch = RemovalWatch(session, name, uid)
    retry_command = session.command("destroy", name, "-y")
    try:
        await wait_until(session, watch.poll, timeout_s=timeout_s)
    except TimeoutError:
        raise TimedOutError(
            f"Workload {name!r} is not deleted after {render_age(timeout_s)}; "
            f"remaining: {watch.latest or 'unknown'}.",
            f"The deletion continues. Wait for it again: {retry_command}",
        ) from None
    except asyncio.CancelledError:
        raise StoppedError(
            f"Stopped waiting; the deletion of {name!r} continues.",
            f"Wait for it again: {retry_command}",
        ) from None
    return watch.parts


def _count_remaining(observed: Observed) -> list[str]:
    counts = {
        "workload": 1 if observed.workload else 0,
        "deployment": len(observed.deployments.items),
        "instance": len(observed.instances.items),
    }
    return [render_count(count, noun) for noun, count in counts.items() if count]


COMMAND = destroy
