"""Follows a rollout until it is done: prints what changes, ends with a verdict."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from datum_compute.api.kinds import DEPLOYMENT, WORKLOAD
from datum_compute.api.workload import Workload
from datum_compute.cli.errors import ConflictError, FailedError, StoppedError, TimedOutError
from datum_compute.cli.observe import belongs_to, observe
from datum_compute.cli.output import one_line, render_age, render_count
from datum_compute.cli.rollout import Place, PlaceProgress, Progress, assess_rollout
from datum_compute.cli.session import Session
from datum_compute.cli.waiting import Arrived, Patience, WatchFor, wait_until


@dataclass(slots=True)
class RolloutWatch:
    """One rollout, pinned to the workload and the generation that were written."""

    session: Session
    name: str
    uid: str
    generation: int
    latest: Progress | None = None
    _printed: dict[Place | None, str] = field(default_factory=dict)

    async def look(self) -> Arrived[Progress] | WatchFor:
        observed = await observe(self.session, self.name, self.uid)
        workload = observed.workload
        if workload is None or workload.is_terminating:
            raise FailedError(
                f"Workload {self.name!r} was deleted while it rolled out.",
                "Whoever deleted it meant it; deploy it again if not.",
            )
        if workload.metadata.generation > self.generation:
            raise ConflictError(
                f"Workload {self.name!r} was changed by somebody else while it rolled out.",
                f"See what it is now: {self.session.command('status', self.name)}",
            )
        self.latest = assess_rollout(
            workload,
            observed.deployments.items,
            observed.instances.items,
            generation=self.generation,
        )
        self._print_changes(self.latest)
        if self.latest.done:
            return Arrived(self.latest)
        uid = self.uid
        if not self.latest.observed:
            version = workload.metadata.resource_version
            return WatchFor(WORKLOAD, version, lambda obj: belongs_to(obj, uid))
        return WatchFor(DEPLOYMENT, observed.deployments.version, lambda obj: belongs_to(obj, uid))

    def _print_changes(self, progress: Progress) -> None:
        """Before the platform has looked, the cities can only tell of the past."""
        lines: dict[Place | None, str] = {}
        if progress.observed:
            for place in (*progress.places, *progress.removing):
                lines[place.place] = render_place_line(place)
        else:
            lines[None] = f"Waiting for the platform to take up generation {self.generation}"
        for key, line in lines.items():
            if self._printed.get(key) != line:
                self.session.output.note(line)
        self._printed = lines


async def wait_for_rollout(
    session: Session, workload: Workload, *, timeout_s: float, patience: Patience | None = None
) -> Progress:
    """The finished rollout; otherwise TimedOutError, FailedError or StoppedError."""
    name, metadata = workload.metadata.name, workload.metadata
    watch = RolloutWatch(session, name, metadata.uid, metadata.generation)
    started = asyncio.get_running_loop().time()
    try:
        progress = await wait_until(
            session, watch.look, timeout_s=timeout_s, patience=patience or Patience()
        )
    except TimeoutError:
        waited = render_age(timeout_s)
        raise TimedOutError(
            f"The rollout of {name!r} is not done after {waited}{_blocker_text(watch.latest)}.",
            f"It goes on without this command. See: {session.command('status', name)}",
        ) from None
    except asyncio.CancelledError:
        # Only Ctrl-C cancels a command; what was written stays written.
        raise StoppedError(
            f"Stopped waiting; the rollout of {name!r} goes on.",
            f"Wait for it again: {session.command('deploy', name)}",
        ) from None
    elapsed = asyncio.get_running_loop().time() - started
    session.output.note(_done_text(name, progress, elapsed), color="green")
    return progress


def render_place_line(progress: PlaceProgress) -> str:
    place = progress.place
    name = place.city if place.placement == "default" else f"{place.city} ({place.placement})"
    line = (
        f"{name}: {progress.phase}, {progress.ready}/{progress.desired} ready, "
        f"{progress.updated}/{progress.desired} up to date"
    )
    surplus = progress.replicas - progress.desired
    if surplus > 0:
        line += f", {surplus} to go"
    cause = progress.cause
    if cause.reason:
        line += f"; {cause.reason}"
        line += f": {one_line(cause.message)}" if cause.message else ""
    return line


def _blocker_text(progress: Progress | None) -> str:
    if progress is None:
        return ""
    place, cause = progress.blocker
    if not cause.reason:
        what = "it has not reported yet"
    else:
        what = f"{cause.reason}: {one_line(cause.message)}" if cause.message else cause.reason
    where = f"{place.city}: " if place else ""
    return f"; {where}{what}".rstrip(".")


def _done_text(name: str, progress: Progress, elapsed_s: float) -> str:
    ready = sum(place.ready for place in progress.places)
    cities = len({place.place.city for place in progress.places})
    text = (
        f"{name} is ready: {render_count(ready, 'instance')} in {render_count(cities, 'city')}, "
        f"after {render_age(elapsed_s)}."
    )
    if progress.removing:
        leaving = ", ".join(place.place.city for place in progress.removing)
        text += f" Still being removed: {leaving}."
    return text
