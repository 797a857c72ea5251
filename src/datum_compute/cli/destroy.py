"""``destroy``: delete a workload, and wait until nothing of it is left in the project."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import click

from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, WORKLOAD
from datum_compute.api.meta import KindInfo, Ref
from datum_compute.api.workload import Workload
from datum_compute.cli.errors import StoppedError, TimedOutError
from datum_compute.cli.observe import Observed, belongs_to, find_workload, observe
from datum_compute.cli.options import connection_options, wait_options, yes_option
from datum_compute.cli.output import render_age, render_count
from datum_compute.cli.prompt import confirm
from datum_compute.cli.session import Session, run_in_session
from datum_compute.cli.waiting import Arrived, Patience, WatchFor, wait_until


@click.command(short_help="Delete a workload and wait until it is gone.")
@click.argument("name")
@yes_option
@wait_options(default="5m")
@connection_options
@click.pass_context
def destroy(ctx: click.Context, name: str, yes: bool, wait: bool, timeout_s: int) -> None:
    """Delete the workload NAME with all its instances, and wait until it is gone."""
    patience_s = timeout_s if wait else None
    run_in_session(ctx, lambda session: _destroy(session, name, yes=yes, timeout_s=patience_s))


async def _destroy(session: Session, name: str, *, yes: bool, timeout_s: int | None) -> None:
    """``timeout_s`` None: do not wait."""
    workload = await find_workload(session, name)
    session.output.note(_summary(session, workload))
    if not yes:
        confirm(session.surroundings, f"Delete workload {name} from {session.place}?")
    uid = workload.metadata.uid
    if not workload.is_terminating:
        with suppress(NotFound):  # somebody was quicker, which is all the same to us
            await session.client.delete(WORKLOAD, Ref(session.namespace, name), uid=uid)
    if timeout_s is None:
        session.output.data(f"workload/{name} is being deleted")
        return
    await wait_until_gone(session, name, uid, timeout_s=timeout_s)
    session.output.data(f"workload/{name} deleted")


def _summary(session: Session, workload: Workload) -> str:
    placements = workload.spec.placements
    cities = ", ".join(dict.fromkeys(city for p in placements for city in p.city_codes))
    instances = render_count(workload.status.replicas, "instance")
    text = f"Workload {workload.metadata.name} in {session.place}: {instances} in {cities}."
    return text + (" It is being deleted already." if workload.is_terminating else "")


@dataclass(slots=True)
class RemovalWatch:
    """What is left of one workload (that very one: its name may be in use again)."""

    session: Session
    name: str
    uid: str
    latest: str = ""

    async def look(self) -> Arrived[None] | WatchFor:
        observed = await observe(self.session, self.name, self.uid)
        remaining = _remaining(observed)
        if not remaining:
            return Arrived(None)
        text = ", ".join(remaining)
        if text != self.latest:
            self.session.output.note(f"Left: {text}")
        self.latest = text
        return self._watched(observed)

    def _watched(self, observed: Observed) -> WatchFor:
        """Instances go first, then deployments, then the workload: watch what goes next."""
        uid = self.uid
        kind: KindInfo[Any] = WORKLOAD
        since = observed.deployments.version  # one counter for the whole plane
        if observed.instances.items:
            kind, since = INSTANCE, observed.instances.version
        elif observed.deployments.items:
            kind = DEPLOYMENT
        return WatchFor(kind, since, lambda obj: belongs_to(obj, uid))


async def wait_until_gone(
    session: Session,
    name: str,
    uid: str,
    *,
    timeout_s: float,
    patience: Patience | None = None,
) -> None:
    watch = RemovalWatch(session, name, uid)
    again = session.command("destroy", name, "-y")
    try:
        await wait_until(session, watch.look, timeout_s=timeout_s, patience=patience or Patience())
    except TimeoutError:
        raise TimedOutError(
            f"Workload {name!r} is not gone after {render_age(timeout_s)}; "
            f"left: {watch.latest or 'unknown'}.",
            f"It goes on without this command. Wait for it again: {again}",
        ) from None
    except asyncio.CancelledError:
        raise StoppedError(
            f"Stopped waiting; the deletion of {name!r} goes on.", f"Wait for it again: {again}"
        ) from None


def _remaining(observed: Observed) -> list[str]:
    counts = {
        "workload": 1 if observed.workload else 0,
        "deployment": len(observed.deployments.items),
        "instance": len(observed.instances.items),
    }
    return [render_count(count, noun) for noun, count in counts.items() if count]


COMMAND = destroy
