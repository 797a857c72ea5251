"""The template of each city during a rollout, and the state of the rollout in each city.

Rules of the order:
- Cities are ordered as the placements of the workload, then as their ``cityCodes``. With two or
  more cities the default is one city after the other (``cityOrder``).
- A city that waits keeps the template of its deployment. The rollout of a paused, suspended or
  stopped workload does not advance.
- A city is Done when its cell reports a complete rollout of the generation and the template that
  the deployment has. It stays Done until the template changes.
- A city is Skipped if its cell is unreachable or no cell accepts its deployment, for example
  because the cell is drained. It keeps its template, and the next city takes its turn. It gets the
  template when it can be updated again.
- A new city gets the current template immediately. A fallback city has the template of the city
  that it replaces. A restart of one city applies immediately to the template that the city has.
- A change back to the template that waiting cities still have applies immediately to the cities
  that were updated.

Rules of a failure: a city has failed when its rollout exceeds the progress deadline. Later cities
then keep their template until the city recovers or the template changes. With ``onFailure:
Rollback`` all cities get the last template that every city completed, or that of the previous
revision if there is none, until the template of the workload changes. The decision is recorded in
the status before any city changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import AVAILABLE, InstanceTemplate
from datum_compute.api.compute.workload import (
    PROGRESSING,
    CityRollout,
    CityRolloutState,
    Workload,
    WorkloadRollout,
)
from datum_compute.api.compute.workload_revision import WorkloadRevision
from datum_compute.api.conditions import Reason, find_condition
from datum_compute.api.planes import normalize_city
from datum_compute.planning.rollout.status import sum_blocked
from datum_compute.planning.rollout.suspension import NO_REACHABLE_CELL
from datum_compute.planning.workload.fallback import CityAssignment, fallback_for
from datum_compute.planning.workload.templates import template_hash, with_city_restart

Assignments = Mapping[str, Sequence[CityAssignment]]  # by placement


@dataclass(frozen=True, slots=True)
class CityTemplates:
    """The template of each deployment, by placement and city, and the state of the rollout.

    ``is_rollback_new``: the rollback must be recorded in the status before any city changes.
    """

    templates: Mapping[tuple[str, str], InstanceTemplate]
    rollout: WorkloadRollout
    is_rollback_new: bool = False


def plan_city_templates(
    workload: Workload,
    assignments: Assignments,
    deployments: Sequence[WorkloadDeployment],
    revisions: Sequence[WorkloadRevision] = (),
    *,
    is_halted: bool = False,
) -> CityTemplates:
    """Decide which template each city gets.

    ``revisions`` are those of this workload, oldest first. They are required only if
    ``needs_revisions`` is True. The rollout of a workload that ``is_halted`` does not advance.
    """
    order = _CityOrder(workload, deployments, revisions, is_halted=is_halted)
    return order.plan(assignments)


def needs_revisions(workload: Workload, deployments: Sequence[WorkloadDeployment]) -> bool:
    """Return True if the planner may need the templates of earlier revisions.

    It needs none while every city is done. Revisions are therefore not read for every report.
    """
    rollout = workload.status.rollout
    present = {(d.spec.placement_name, fallback_for(d) or d.spec.city_code) for d in deployments}
    return bool(rollout.failed_template_hash) or any(
        city.state != "Done" or (city.placement, city.city) not in present
        for city in rollout.cities
    )


def is_rolled_back(workload: Workload) -> bool:
    """Return True if the current template failed and was rolled back."""
    failed = workload.status.rollout.failed_template_hash
    return bool(failed) and failed == template_hash(workload.spec.template)


def restored_template(
    workload: Workload, revisions: Sequence[WorkloadRevision]
) -> InstanceTemplate | None:
    """Return the template that the cities run after a rollback; None if there is no rollback."""
    if not is_rolled_back(workload):
        return None
    number = workload.status.rollout.running_revision
    found = next((r for r in revisions if r.spec.revision == number), None)
    return found.spec.template if found is not None else None


def city_order_of(workload: Workload) -> str:
    """Return the city order of the workload, with its default."""
    cities = {normalize_city(c) for p in workload.spec.placements for c in p.city_codes}
    return workload.spec.rollout.city_order or ("Sequential" if len(cities) > 1 else "Parallel")


@dataclass(slots=True, eq=False)
class CitySlot:
    """A city of a placement: its deployments, which may be in fallback cities, and its state."""

    placement: str
    city: str
    wanted: tuple[str, ...]  # cities in which its replicas should run
    deployments: tuple[WorkloadDeployment, ...]
    template: InstanceTemplate | None  # None for a new city
    template_hash: str
    recorded: CityRollout | None
    state: CityRolloutState = "Waiting"
    reason: str = ""
    message: str = ""

    @property
    def blocks(self) -> bool:
        """Whether the city has the current template and has not completed its rollout."""
        return self.state in ("RollingOut", "Failed")


class _CityOrder:
    """Decides the templates of the cities of one workload."""

    def __init__(
        self,
        workload: Workload,
        deployments: Sequence[WorkloadDeployment],
        revisions: Sequence[WorkloadRevision],
        *,
        is_halted: bool = False,
    ) -> None:
        self._workload = workload
        self._revisions = revisions
        self._is_paused = workload.spec.paused or is_halted
        self._recorded = workload.status.rollout
        self._spec_hash = template_hash(workload.spec.template)
        self._hashes: list[tuple[InstanceTemplate, str]] = [
            (workload.spec.template, self._spec_hash)
        ]
        self._deployments: dict[tuple[str, str], WorkloadDeployment] = {}
        for found in sorted(deployments, key=lambda deployment: not deployment.is_terminating):
            self._deployments[found.spec.placement_name, found.spec.city_code] = found

    def plan(self, assignments: Assignments) -> CityTemplates:
        slots = self._build_slots(assignments)
        if is_rolled_back(self._workload):
            return self._keep_rolled_back(slots)
        target = self._spec_hash
        for slot in slots:
            self._observe(slot, target)
        rollback = self._new_rollback(slots)
        if rollback is not None:
            return CityTemplates({}, rollback, is_rollback_new=True)
        updated = [slot for slot in slots if slot.template_hash == target or not slot.template]
        if self._is_change_back(slots):
            updated += [s for s in slots if s.template_hash == self._recorded.template_hash]
        else:
            updated += self._next_slots(slots)
        for slot in updated:
            if slot.state == "Waiting":
                slot.state = "RollingOut"
        return CityTemplates(
            self._templates_by_city(slots, updated), self._rollout_status(slots, updated, target)
        )

    # --- observation

    def _build_slots(self, assignments: Assignments) -> list[CitySlot]:
        recorded = {(city.placement, city.city): city for city in self._recorded.cities}
        slots = []
        for placement in self._workload.spec.placements:
            for assignment in assignments[placement.name]:
                found = [
                    deployment
                    for city in dict.fromkeys((assignment.city, *assignment.wanted))
                    if (deployment := self._deployments.get((placement.name, city))) is not None
                ]
                entry = recorded.get((placement.name, assignment.city))
                template = self._held_template(found, entry)
                slots.append(
                    CitySlot(
                        placement=placement.name,
                        city=assignment.city,
                        wanted=assignment.wanted,
                        deployments=tuple(d for d in found if not d.is_terminating),
                        template=template,
                        template_hash=self._hash(template) if template is not None else "",
                        recorded=entry,
                    )
                )
        return slots

    def _held_template(
        self, deployments: Sequence[WorkloadDeployment], recorded: CityRollout | None
    ) -> InstanceTemplate | None:
        """Return the template that the city has; None if the city is new.

        A deployment that was deleted or edited by hand gets the template that is recorded for its
        city. A template that is neither recorded nor the current one was written by hand.
        """
        deployment = min(deployments, key=lambda found: found.is_terminating, default=None)
        held = deployment.spec.template if deployment is not None else None
        if recorded is None:
            return held
        if held is not None and self._hash(held) in (self._spec_hash, recorded.template_hash):
            return held
        if recorded.template_hash == self._spec_hash:
            return self._workload.spec.template
        revision = self._revision_of(recorded.template_hash)
        return revision.spec.template if revision is not None else held

    def _hash(self, template: InstanceTemplate) -> str:
        """Hash the template without the restart of its city. Equal templates are hashed once."""
        for known, digest in self._hashes:
            if known == template:
                return digest
        if template == self._without_restart(template):
            digest = template_hash(template)
        else:
            digest = self._hash(self._without_restart(template))
        self._hashes.append((template, digest))
        return digest

    @staticmethod
    def _without_restart(template: InstanceTemplate) -> InstanceTemplate:
        return with_city_restart(template, "")

    def _observe(self, slot: CitySlot, target: str) -> None:
        """Set the state of the slot as its cells report it."""
        recorded = slot.recorded
        if slot.template is None:
            slot.state = "RollingOut"
            return
        is_at_target = slot.template_hash == target
        was_done = recorded is not None and recorded.state == "Done"
        if is_at_target and was_done and recorded is not None and recorded.template_hash == target:
            slot.state = "Done"
            return
        reachable = [d for d in slot.deployments if not is_skipped(d)]
        if slot.deployments and not reachable:
            slot.state = "Skipped"
            available = find_condition(slot.deployments[0].status.conditions, AVAILABLE)
            if available is not None:
                slot.reason, slot.message = available.reason, available.message
        elif not is_at_target:
            slot.state = "Waiting"
        elif any(is_rolled_out(d) for d in reachable):
            slot.state = "Done"
        elif reachable and all(is_failed(d) for d in reachable):
            slot.state = "Failed"
            slot.reason, slot.message = failure_cause(reachable[0])
        else:
            slot.state = "RollingOut"

    # --- decisions

    def _is_change_back(self, slots: Sequence[CitySlot]) -> bool:
        """Return True if the new template is the one that a waiting city still has."""
        is_new = self._recorded.template_hash not in ("", self._spec_hash)
        return is_new and any(
            slot.recorded is not None
            and slot.recorded.state == "Waiting"
            and slot.recorded.template_hash == self._spec_hash == slot.template_hash
            for slot in slots
        )

    def _next_slots(self, slots: Sequence[CitySlot]) -> list[CitySlot]:
        """Return the slots whose turn it is.

        A group starts when all earlier groups are done or skipped, and no other city is updated.
        """
        if city_order_of(self._workload) == "Parallel":
            return [slot for slot in slots if slot.template]
        if self._is_paused:
            return []
        groups = self._groups([slot for slot in slots if slot.state != "Skipped"])
        for group in groups:
            if all(slot.state == "Done" for slot in group):
                continue
            waiting = [slot for slot in group if slot.state == "Waiting"]
            others = [slot for slot in slots if slot.blocks and slot not in group]
            return waiting if not others else []
        return []

    def _groups(self, slots: Sequence[CitySlot]) -> list[list[CitySlot]]:
        """Return the slots in groups that are updated one after the other."""
        if city_order_of(self._workload) == "Sequential":
            return [[slot] for slot in slots]
        chosen = normalize_city(self._workload.spec.rollout.canary_city or "")
        canaries = [slot for slot in slots if slot.city == chosen] or list(slots[:1])
        return [canaries, [slot for slot in slots if slot not in canaries]]

    def _new_rollback(self, slots: Sequence[CitySlot]) -> WorkloadRollout | None:
        """Return the status that records a new rollback; None if there is none to start."""
        failed = next((slot for slot in slots if slot.state == "Failed"), None)
        completed = self._recorded.completed_template_hash
        if failed is None or self._workload.spec.rollout.on_failure != "Rollback":
            return None
        failed_revision = self._revision_of(self._spec_hash)
        if failed_revision is None or completed == self._spec_hash:
            return None
        number = failed_revision.spec.revision
        restored = self._revision_of(completed) or next(
            (r for r in reversed(self._revisions) if self._is_restorable(r, number)), None
        )
        if restored is None:
            return None
        return WorkloadRollout(
            template_hash=restored.spec.template_hash,
            cities=[self._city_rollout(slot) for slot in slots],
            completed_template_hash=restored.spec.template_hash,
            failed_template_hash=self._spec_hash,
            failed_revision=number,
            running_revision=restored.spec.revision,
        )

    def _is_restorable(self, revision: WorkloadRevision, failed: int) -> bool:
        """Return True if the revision is earlier than the failed one and has another template."""
        spec = revision.spec
        return spec.revision < failed and spec.template_hash != self._spec_hash

    def _keep_rolled_back(self, slots: Sequence[CitySlot]) -> CityTemplates:
        """Give all cities the template that was restored. Failed cities stay reported."""
        template = restored_template(self._workload, self._revisions)
        if template is None:  # its revision was deleted: keep what runs
            template = next((s.template for s in slots if s.template), self._workload.spec.template)
            target = self._recorded.template_hash
        else:
            target = self._hash(template)
        for slot in slots:
            self._observe(slot, target)
            recorded = slot.recorded
            if recorded is not None and recorded.state == "Failed":
                slot.state, slot.reason = recorded.state, recorded.reason
                slot.message = recorded.message
            elif slot.state == "Waiting":
                slot.state = "RollingOut"
        templates = {
            (slot.placement, city): with_city_restart(template, self._restart_in(city))
            for slot in slots
            for city in slot.wanted
        }
        return CityTemplates(
            templates,
            msgspec.structs.replace(
                self._recorded,
                template_hash=target,
                cities=[self._city_rollout(slot, target) for slot in slots],
            ),
        )

    # --- results

    def _templates_by_city(
        self, slots: Sequence[CitySlot], updated: Sequence[CitySlot]
    ) -> dict[tuple[str, str], InstanceTemplate]:
        templates = {}
        for slot in slots:
            for city in slot.wanted:
                is_updated = slot in updated or slot.template is None
                base = self._workload.spec.template if is_updated else slot.template
                assert base is not None
                templates[slot.placement, city] = self._template_in_city(
                    slot, city, base, is_updated
                )
        return templates

    def _template_in_city(
        self, slot: CitySlot, city: str, base: InstanceTemplate, is_updated: bool
    ) -> InstanceTemplate:
        """Return the template of the slot in a city, with the restart of that city."""
        restarted_at = self._restart_in(city)
        if is_updated:
            return with_city_restart(base, restarted_at) if restarted_at else base
        own = self._deployments.get((slot.placement, city))
        if (
            own is not None
            and not restarted_at
            and self._hash(own.spec.template) == self._hash(base)
        ):
            return own.spec.template
        return with_city_restart(base, restarted_at)

    def _restart_in(self, city: str) -> str:
        restarts = self._workload.spec.restarts
        return next((r.at for r in reversed(restarts) if normalize_city(r.city_code) == city), "")

    def _rollout_status(
        self, slots: Sequence[CitySlot], updated: Sequence[CitySlot], target: str
    ) -> WorkloadRollout:
        counted = [slot for slot in slots if slot.state != "Skipped"]
        is_complete = bool(counted) and all(slot.state == "Done" for slot in counted)
        completed = target if is_complete else self._recorded.completed_template_hash
        blocking = ", ".join(slot.city for slot in slots if slot.blocks)
        for slot in slots:
            if slot.state != "Waiting":
                continue
            if self._workload.spec.paused:
                slot.reason = Reason.ROLLOUT_PAUSED
                slot.message = "Keeps its template until the rollout is resumed"
            elif self._is_paused:
                slot.message = "Keeps its template until the workload runs again"
            else:
                slot.message = (
                    f"Keeps its template until the rollout in {blocking or 'an earlier city'} "
                    "is complete"
                )
        return WorkloadRollout(
            template_hash=target,
            cities=[self._city_rollout(slot, target if slot in updated else "") for slot in slots],
            completed_template_hash=completed,
        )

    def _city_rollout(self, slot: CitySlot, digest: str = "") -> CityRollout:
        return CityRollout(
            placement=slot.placement,
            city=slot.city,
            state=slot.state,
            reason=slot.reason,
            message=slot.message,
            template_hash=digest or slot.template_hash,
        )

    def _revision_of(self, digest: str) -> WorkloadRevision | None:
        """Return the newest revision with this template hash."""
        found = (r for r in reversed(self._revisions) if r.spec.template_hash == digest)
        return next(found, None)


def is_skipped(deployment: WorkloadDeployment) -> bool:
    """Return True if the city cannot be updated now."""
    available = find_condition(deployment.status.conditions, AVAILABLE)
    return available is not None and available.reason in NO_REACHABLE_CELL


def is_rolled_out(deployment: WorkloadDeployment) -> bool:
    """Return True if the cell has completed the rollout of the deployment's template."""
    return _progress_reason(deployment) == Reason.ROLLOUT_COMPLETE


def is_failed(deployment: WorkloadDeployment) -> bool:
    """Return True if the rollout of the deployment's template exceeded its progress deadline."""
    return _progress_reason(deployment) == Reason.PROGRESS_DEADLINE_EXCEEDED


def _progress_reason(deployment: WorkloadDeployment) -> str:
    """Return the reason of Progressing; empty if the status is about an older version.

    Without a federation the status does not name its source.
    """
    status, generation = deployment.status, deployment.metadata.generation
    source = status.observed_source
    if source.generation:
        is_current = source.generation == generation
        is_current = is_current and source.template_hash == template_hash(deployment.spec.template)
    else:
        is_current = status.observed_generation == generation
    condition = find_condition(status.conditions, PROGRESSING) if is_current else None
    return condition.reason if condition is not None else ""


def failure_cause(deployment: WorkloadDeployment) -> tuple[str, str]:
    """Return reason and message of a failed rollout: those of the worst instance, if known."""
    status = deployment.status
    in_surge = status.surge.blocked if status.surge is not None else []
    for blocked in sum_blocked((status.blocked, in_surge)):  # the worst first
        return blocked.reason, blocked.message
    condition = find_condition(deployment.status.conditions, PROGRESSING)
    assert condition is not None
    return condition.reason, condition.message
