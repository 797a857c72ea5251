"""Waits for a rollout and prints its progress.

A rollout without progress for a while is reported as stalled, with the cause, who has to act and
the next command. If only the user can remove the cause, the wait ends with an error, because
waiting longer would not help; if the workload ran before, the hint is how to undo the change. A
crash is such a cause only after two restarts, as counted by a crash report, or after the instance
has been crashing for ``crash_s``. With ``onFailure:
Rollback`` the wait ends when the platform has decided about the rollback instead. An instance that
stops within its grace period is not a stall. The rollout itself continues in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.workload import Workload
from datum_compute.api.conditions import Reason
from datum_compute.api.kinds import DEPLOYMENT, WORKLOAD
from datum_compute.api.labels import WORKLOAD_UID
from datum_compute.cli.connect.session import Session
from datum_compute.cli.errors import ConflictError, FailedError, StoppedError, TimedOutError
from datum_compute.cli.render.documents import CauseDocument, extend_document
from datum_compute.cli.render.events import BlockedEvent, DoneEvent, PausedEvent
from datum_compute.cli.render.live import RolloutView, build_view
from datum_compute.cli.render.output import one_line, render_age, render_count
from datum_compute.cli.workload.crashes import is_crash_loop, read_crash_reports, select_workload
from datum_compute.cli.workload.observe import Observed, belongs_to, observe
from datum_compute.cli.workload.rollout import (
    CrashTimer,
    Phase,
    PlaceProgress,
    Progress,
    StallTimer,
    assess_rollout,
    is_crashing,
    is_overdue,
    place_document,
    settling_s,
)
from datum_compute.cli.workload.undo_target import can_undo
from datum_compute.cli.workload.wait import StateReached, WatchNext, wait_until
from datum_compute.planning.explain.advice import Actor
from datum_compute.planning.explain.explain import Link, explain_workload
from datum_compute.planning.workload.names import place_of_deployment

_TENTHS_BELOW_S = 60  # waits that are shorter are printed with tenths of a second

ACTIONS = {
    Actor.USER: "action required from you",
    Actor.PLATFORM: "action required from the platform operator",
    Actor.WAIT: "no action needed, wait",
    Actor.NONE: "no action needed",
}


@dataclass(slots=True)
class RolloutWatch:
    """A rollout of the workload (by uid) and the generation that were written."""

    session: Session
    name: str
    uid: str
    generation: int
    view: RolloutView
    started_s: float
    latest: Progress | None = None
    urls: tuple[str, ...] = ()  # of published ports
    _timer: StallTimer = field(default_factory=StallTimer)
    _crashes: CrashTimer = field(default_factory=CrashTimer)
    _reported: str = ""  # the reason of the last stall that was reported

    async def poll(self) -> StateReached[Progress] | WatchNext:
        observed = await observe(self.session, self.name, self.uid)
        workload = self._require_unchanged(observed)
        now = asyncio.get_running_loop().time()
        self.latest = assess_rollout(
            workload,
            observed.deployments.items,
            observed.instances.items,
            generation=self.generation,
        )
        endpoints = (e for d in observed.deployments.items for e in d.status.endpoints)
        self.urls = tuple(dict.fromkeys(endpoint.url for endpoint in endpoints))
        self._timer.record(_counts(self.latest), observed.instances.items, now)
        self._crashes.record(observed.instances.items, now)
        self.view.show(self.latest, self.generation, now - self.started_s)
        if self.latest.restored_revision is not None:
            raise self._rolled_back_error(self.latest, self.latest.restored_revision)
        is_waiting = self.latest.paused or bool(self.latest.halted)
        if self.latest.done or (self.latest.observed and is_waiting):
            return StateReached(self.latest)
        await self._check_stall(observed, workload, now)
        uid = self.uid
        if not self.latest.observed:
            version = workload.metadata.resource_version
            return WatchNext(WORKLOAD, version, lambda obj: belongs_to(obj, uid))
        return WatchNext(DEPLOYMENT, observed.deployments.version, lambda obj: belongs_to(obj, uid))

    def _require_unchanged(self, observed: Observed) -> Workload:
        """Return the workload. Raise if it was deleted or changed after the write."""
        workload = observed.workload
        if workload is None or workload.is_terminating:
            raise FailedError(
                f"Workload {self.name!r} was deleted during its rollout.",
                "Deploy it again if that was a mistake.",
            )
        if workload.metadata.generation > self.generation:
            raise ConflictError(
                f"Workload {self.name!r} was changed by another client during its rollout.",
                f"Show its status: {self.session.command('status', self.name)}",
            )
        return workload

    async def _check_stall(self, observed: Observed, workload: Workload, now_s: float) -> None:
        """Report a stall, or raise FailedError if waiting longer would not help."""
        without_progress_s = now_s - self._timer.progressed_at_s
        timeouts = self.session.environment.timeouts
        deployments, instances = observed.deployments.items, observed.instances.items
        exceeded = self._is_failed(workload, deployments)
        may_roll_back = workload.spec.rollout.on_failure == "Rollback"
        stalled_s = without_progress_s - settling_s(deployments)
        is_early = stalled_s < min(timeouts.stall_s, timeouts.user_cause_s)
        if not exceeded and (is_early or self._timer.is_waiting):
            return
        cause = explain_workload(workload, deployments, instances).cause
        cause = replace(cause, command=self.session.complete_command(cause.command))
        is_user_cause = cause.actor is Actor.USER and stalled_s >= timeouts.user_cause_s
        is_user_cause = is_user_cause and not may_roll_back
        if exceeded or (is_user_cause and await self._is_lasting(cause, observed, now_s)):
            raise await self._failure_error(workload, cause)
        if stalled_s >= timeouts.stall_s and self._reported != cause.reason:
            self._reported = cause.reason
            explain = self.session.command("explain", self.name)
            self.session.emit_event(
                extend_document(BlockedEvent, cause_document(cause), explain=explain),
                f"No progress for {render_age(without_progress_s)}: {cause_text(cause)} "
                f"({ACTIONS[cause.actor]}; waiting for: {cause.waiting_for}). "
                f"Next: {cause.command}\nExplain: {explain}",
                color="yellow",
            )

    async def _is_lasting(self, cause: Link, observed: Observed, now_s: float) -> bool:
        """Return False for a crash that a restart may still end."""
        name = cause.ref.name
        instance = next((i for i in observed.instances.items if i.metadata.name == name), None)
        if instance is None or not is_crashing(instance):
            return True
        if self._crashes.crashing_s(name, now_s) >= self.session.environment.timeouts.crash_s:
            return True
        uid = instance.metadata.labels.get(WORKLOAD_UID, "")
        reports = select_workload(await read_crash_reports(self.session, name), uid)
        return is_crash_loop(reports, instance.spec.controller.template_hash)

    def _is_failed(self, workload: Workload, deployments: Sequence[WorkloadDeployment]) -> bool:
        """Return True if the rollout exceeded its deadline and is not rolled back.

        The platform decides about a rollback when it records that a city has failed.
        """
        assert self.latest is not None
        if not self.latest.observed:
            return False
        if workload.spec.rollout.on_failure == "Rollback":
            return bool(self.latest.failed_places)
        waiting = {p.place for p in self.latest.places if p.phase is Phase.WAITING}
        return any(is_overdue(d) and place_of_deployment(d) not in waiting for d in deployments)

    def _rolled_back_error(self, progress: Progress, restored: int) -> FailedError:
        failed = progress.failed_places
        causes = "; ".join(_failed_place_text(place) for place in failed)
        return FailedError(
            f"The rollout of {self.name!r} failed and revision {restored} was restored: "
            f"{causes or 'no city reports the cause'}.",
            f"Deploy a corrected template. Explain: {self.session.command('explain', self.name)}",
        )

    async def _failure_error(self, workload: Workload, cause: Link) -> FailedError:
        hint = f"Waiting for: {cause.waiting_for}. Next: {cause.command}"
        if await can_undo(self.session, workload):
            undo = self.session.command("rollout", "undo", self.name)
            hint += f"\nUndo the change: {undo}"
        assert self.latest is not None
        failed = self.latest.failed_places if len(self.latest.places) > 1 else ()
        where = ", ".join(dict.fromkeys(place.place.city for place in failed))
        return FailedError(
            f"The rollout of {self.name!r} failed{f' in {where}' if where else ''}: "
            f"{cause_text(cause)}.",
            hint,
            field=f"{cause.kind}/{cause.ref.name}",
        )


def _counts(progress: Progress) -> object:
    """Return the values that change when a rollout makes progress.

    An instance that becomes available is progress. One that only becomes ready is not: an image
    that repeatedly starts and exits makes no progress.
    """
    return progress.observed, [
        (p.place, p.phase, p.available, p.updated, p.replicas, p.desired) for p in progress.places
    ]


def _failed_place_text(progress: PlaceProgress) -> str:
    cause = progress.cause
    return f"{progress.place.city}: {cause.reason}: {one_line(cause.message)}".rstrip(".: ")


def cause_text(cause: Link) -> str:
    text = f"{cause.kind} {cause.ref.name} is not ready ({cause.reason})"
    return f"{text}: {one_line(cause.message)}".rstrip(".") if cause.message else text


def cause_document(cause: Link) -> CauseDocument:
    return CauseDocument(
        kind=cause.kind,
        name=cause.ref.name,
        reason=cause.reason,
        message=cause.message,
        since=cause.since,
        move=str(cause.actor),
        awaited=cause.waiting_for,
        command=cause.command,
    )


async def wait_for_rollout(
    session: Session, workload: Workload, *, timeout_s: float, resume: str = ""
) -> Progress:
    """Wait until the rollout is done, paused or stopped. ``resume`` is the command to wait again.

    Raise TimedOutError, FailedError or StoppedError.
    """
    name, metadata = workload.metadata.name, workload.metadata
    clock = asyncio.get_running_loop().time
    view = build_view(session, name)
    watch = RolloutWatch(view.session, name, metadata.uid, metadata.generation, view, clock())
    resume = resume or session.command("rollout", "status", name)
    try:
        progress = await wait_until(view.session, watch.poll, timeout_s=timeout_s)
    except TimeoutError:
        raise _timeout_error(session, watch, timeout_s) from None
    except asyncio.CancelledError:
        # Only Ctrl-C cancels a command; what was written stays written.
        raise StoppedError(
            f"Stopped waiting; the rollout of {name!r} continues.", f"Wait for it again: {resume}"
        ) from None
    finally:
        view.close()
    elapsed_s = clock() - watch.started_s
    event_type = DoneEvent if progress.done else PausedEvent
    session.emit_event(
        event_type(
            workload=name,
            generation=metadata.generation,
            elapsed_seconds=round(elapsed_s, 3),
            cities=[place_document(p) for p in progress.places],
            removing=[place_document(p) for p in progress.removing],
        ),
        _done_text(name, progress, elapsed_s, watch.urls)
        if progress.done
        else _waiting_text(session, name, progress),
        color="green" if progress.done else "yellow",
    )
    return progress


def _timeout_error(session: Session, watch: RolloutWatch, timeout_s: float) -> TimedOutError:
    waited, name = render_age(timeout_s), watch.name
    return TimedOutError(
        f"The rollout of {name!r} is not done after {waited}{_blocker_text(watch.latest)}.",
        f"The rollout continues. Explain: {session.command('explain', name)}",
    )


def _blocker_text(progress: Progress | None) -> str:
    if progress is None:
        return ""
    place, cause = progress.blocker
    if not cause.reason:
        what = next((_counts_text(p) for p in progress.places if p.place == place), "")
        what = what or "no status reported"
    else:
        what = f"{cause.reason}: {one_line(cause.message)}" if cause.message else cause.reason
    where = f"{place.city}: " if place else ""
    return f"; {where}{what}".rstrip(".")


def _counts_text(progress: PlaceProgress) -> str:
    """Return the counts of a city that has reported; empty if it has not."""
    if progress.phase is not Phase.UPDATING:
        return ""
    ready, updated = (f"{n}/{progress.desired}" for n in (progress.ready, progress.updated))
    return f"{ready} ready, {updated} up to date"


def _done_text(name: str, progress: Progress, elapsed_s: float, urls: Sequence[str]) -> str:
    ready = sum(place.ready for place in progress.places)
    cities = len({place.place.city for place in progress.places})
    took = f"{elapsed_s:.1f} s" if elapsed_s < _TENTHS_BELOW_S else render_age(elapsed_s)
    text = (
        f"{name} is ready: {render_count(ready, 'instance')} in {render_count(cities, 'city')} "
        f"({took})."
    )
    if progress.removing:
        leaving = ", ".join(place.place.city for place in progress.removing)
        text += f" Still being removed: {leaving}."
    if progress.asleep:
        text += f" {render_count(progress.asleep, 'instance')} asleep; a connection wakes it."
    return "\n".join((text, *(f"URL: {url}" for url in urls)))


def _waiting_text(session: Session, name: str, progress: Progress) -> str:
    if progress.halted == Reason.PROJECT_SUSPENDED:
        access = session.command("access")
        return f"{name} does not run: the project is suspended. Show its access: {access}"
    if progress.halted:
        return f"{name} is stopped. Start it: {session.command('start', name)}"
    updated = sum(place.updated for place in progress.places)
    desired = sum(place.desired for place in progress.places)
    return (
        f"The rollout of {name} is paused: {updated} of {render_count(desired, 'instance')} "
        f"are up to date. Resume it: {session.command('rollout', 'resume', name)}"
    )
