"""Mutants of federation: copies, status, planes, projects, leader election."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec

from datum_compute.api import labels
from datum_compute.api.compute.workload import PROGRESSING
from datum_compute.api.conditions import TRUE, Reason, find_condition
from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.kinds import CLUSTER, DEPLOYMENT, WORK, WORKLOAD
from datum_compute.api.meta.objects import ref_of
from datum_compute.api.planes import HUB, federation_namespace
from datum_compute.planes.bootstrap import ensure_cells
from datum_compute.planes.lifecycle import delete_held_objects
from datum_compute.planning.apply import plan_status
from datum_compute.planning.federation import deployment as federation
from datum_compute.planning.federation.mirror import plan_mirror
from datum_compute.planning.federation.unreachable import find_unreachable
from datum_compute.planning.karmada.bindings import plan_unbound_works, plan_works
from datum_compute.planning.karmada.works import plan_execution
from datum_compute.planning.plan import Plan, drop_finalizer
from datum_compute.planning.platform import entitlements
from datum_compute.planning.workload import history
from datum_compute.planning.workload import status as rollup
from datum_compute.planning.workload.city_order import is_rolled_out, restored_template
from datum_compute.planning.workload.fallback import assign_cities
from datum_compute.planning.workload.names import is_same_workload
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.leader_election import Fence
from testkit.sim.mutants.mutant import Mutant, attribute_replaced, function_replaced


@contextmanager
def _work_released_before_its_copy() -> Iterator[None]:
    """A Work is released after the request to its cell, before the cell has confirmed."""

    def make(original: Any) -> Any:
        def plan(cell: Any, work: Any, *rest: Any, **named: Any) -> Any:
            planned = original(cell, work, *rest, **named)
            if not work.is_terminating:
                return planned
            release = drop_finalizer(HUB, WORK, work, labels.EXECUTION_FINALIZER)
            return Plan((*planned.actions, *release))

        return plan

    with function_replaced(plan_execution, make):
        yield


@contextmanager
def _unreachable_read_as_absent() -> Iterator[None]:
    """A live read that fails counts as "not found"."""

    def make(original: Any) -> Any:
        async def live(self: Any, kind: Any, ref: Any) -> Any:
            try:
                return await original(self, kind, ref)
            except (ApiError, Unreachable):
                return None

        return live

    with attribute_replaced(CachedClient, "get_uncached", make):
        yield


@contextmanager
def _works_outlive_their_binding() -> Iterator[None]:
    """A deleted binding leaves its Works, and no controller collects them."""

    def make(original: Any) -> Any:
        def plan(kind: Any, binding: Any, template: Any, works: Any, now: str) -> Any:
            kept = [] if binding.is_terminating else works
            return original(kind, binding, template, kept, now)

        return plan

    def keep_unbound(_original: Any) -> Any:
        return lambda _works: Plan()

    with function_replaced(plan_works, make), function_replaced(plan_unbound_works, keep_unbound):
        yield


@contextmanager
def _projects_share_hub_namespace() -> Iterator[None]:
    """Namespaces of the same name in two projects share one namespace on the hub."""
    with function_replaced(federation_namespace, lambda _: lambda _uid: "ns-default"):
        yield


@contextmanager
def _copy_replaced_instead_of_changed() -> Iterator[None]:
    """A change of the template deletes the hub's copy of a deployment, which is created again.

    In the end everything is as desired, and every deletion happens in the right order. Meanwhile
    the cell removes all instances of the deployment, because its copy is being deleted.
    """

    def make(original: Any) -> Any:
        def mirror(
            plane: Any,
            kind: Any,
            desired: Any,
            observed: Any,
            reason: str,
            *,
            with_status: bool = False,
            recreate: str = "",
        ) -> Any:
            if kind is DEPLOYMENT and observed is not None and not recreate:
                differs = _images_of(observed) != _images_of(desired)
                recreate = "its template has changed" if differs else ""
            return original(
                plane, kind, desired, observed, reason, with_status=with_status, recreate=recreate
            )

        return mirror

    with function_replaced(plan_mirror, make):
        yield


def _images_of(deployment: Any) -> list[str]:
    return [c.image for c in deployment.spec.template.spec.runtime.sandbox.containers]


@contextmanager
def _unreachable_cell_not_detected() -> Iterator[None]:
    """The last status of an unreachable cell is shown forever."""
    with function_replaced(find_unreachable, lambda _original: lambda _cluster: None):
        yield


@contextmanager
def _observed_generation_decreases() -> Iterator[None]:
    """The observed generation is copied from a recreated hub object."""

    def make(original: Any) -> Any:
        def mirrored(deployment: Any, hub: Any, now: str) -> Any:
            status = original(deployment, hub, now)
            if hub.deployment is None:
                return msgspec.structs.replace(status, observed_generation=0)
            echoed = hub.deployment.status.observed_source.generation
            return msgspec.structs.replace(status, observed_generation=echoed)

        return mirrored

    with function_replaced(federation.project_status_from_hub, make):
        yield


@contextmanager
def _available_without_deployments() -> Iterator[None]:
    """The workload is Available because no deployment has reported that it is unavailable."""

    def make(original: Any) -> Any:
        def available(deployments: Any, *arguments: Any) -> Any:
            found = original(deployments, *arguments)
            reported = any(deployment.status.conditions for deployment in deployments)
            return found if reported else msgspec.structs.replace(found, status=TRUE)

        return available

    with function_replaced(rollup._available_condition, make):
        yield


@contextmanager
def _status_rewritten_when_equal() -> Iterator[None]:
    """Equal statuses are written, and each write requeues its own writer.

    Only for Workload: a loop for each object would only slow the run down.
    """

    def make(original: Any) -> Any:
        def plan(plane: Any, kind: Any, observed: Any, desired: Any, reason: str = "") -> Any:
            found = original(plane, kind, observed, desired, reason)
            listed = getattr(desired, "conditions", None)
            if found or not listed or kind is not WORKLOAD:
                return found
            mark = "." if not listed[0].message.endswith(".") else ""
            touched = msgspec.structs.replace(
                listed[0], message=listed[0].message.rstrip(".") + mark
            )
            changed = msgspec.structs.replace(desired, conditions=[touched, *listed[1:]])
            return original(plane, kind, observed, changed, reason)

        return plan

    with function_replaced(plan_status, make):
        yield


@contextmanager
def _evicted_before_replaced() -> Iterator[None]:
    """A failed city loses its assignment before its fallback city is up."""

    def make(original: Any) -> Any:
        def assign(*arguments: Any, **named: Any) -> Any:
            return [
                replace(assignment, wanted=assignment.wanted[-1:])
                if assignment.status is not None and assignment.status.phase == "Engaging"
                else assignment
                for assignment in original(*arguments, **named)
            ]

        return assign

    with function_replaced(assign_cities, make):
        yield


@contextmanager
def _undo_counts_a_restart() -> Iterator[None]:
    """An undo restores the newest revision that differs, also only in a restart."""
    with function_replaced(history.without_restart, lambda _: lambda template: template):
        yield


@contextmanager
def _plane_removed_before_drained() -> Iterator[None]:
    """A revoked plane is removed at once, with the finalizers that would clean up its objects."""

    async def none_left(_client: Any, _find_stuck_deletion: Any) -> list[str]:
        return []

    with function_replaced(delete_held_objects, lambda _: none_left):
        yield


@contextmanager
def _rewritten_at_every_start() -> Iterator[None]:
    """A start writes objects that exist already."""
    numbers = iter(range(1_000_000))

    def make(original: Any) -> Any:
        async def ensured(hub: Any, *rest: Any) -> None:
            await original(hub, *rest)
            await _annotate_clusters(hub, str(next(numbers)))

        return ensured

    with function_replaced(ensure_cells, make):
        yield


async def _annotate_clusters(hub: Any, text: str) -> None:
    for cluster in (await hub.list(CLUSTER)).items:
        patch = {"metadata": {"annotations": {"example.com/started": text}}}
        await hub.patch(CLUSTER, ref_of(cluster), patch)


@contextmanager
def _entitled_at_cleared() -> Iterator[None]:
    """A rejected entitlement loses the time of its first grant."""

    def make(original: Any) -> Any:
        def report(requested: Any, phase: str, *others: Any, **named: Any) -> Any:
            if phase != "Rejected":
                return original(requested, phase, *others, **named)
            status = msgspec.structs.replace(requested.entitlement.status, entitled_at=None)
            entitlement = msgspec.structs.replace(requested.entitlement, status=status)
            plan = original(replace(requested, entitlement=entitlement), phase, *others, **named)
            for action in plan.actions:
                action.status.setdefault("entitledAt", None)
            return plan

        return report

    with function_replaced(entitlements._report_phase, make):
        yield


@contextmanager
def _workloads_compared_by_name() -> Iterator[None]:
    """What an earlier workload left under a name counts as that of the present workload."""
    with function_replaced(is_same_workload, lambda _original: lambda _uid, _other_uid: True):
        yield


@contextmanager
def _paused_leader_writes() -> Iterator[None]:
    """A former leader writes until it observes its successor. No write checks the lease."""
    with attribute_replaced(Fence, "check", lambda _: lambda _self: None):
        yield


@contextmanager
def _older_report_advances_the_rollout() -> Iterator[None]:
    """A city counts as done by a report about its earlier template."""

    def make(_original: Any) -> Any:
        def is_done(deployment: Any) -> bool:
            progressing = find_condition(deployment.status.conditions, PROGRESSING)
            return progressing is not None and progressing.reason == Reason.ROLLOUT_COMPLETE

        return is_done

    with function_replaced(is_rolled_out, make):
        yield


@contextmanager
def _rollback_loses_part_of_the_template() -> Iterator[None]:
    """A rollback restores the image of the revision, and not its environment."""

    def make(original: Any) -> Any:
        def restored(workload: Any, revisions: Any) -> Any:
            template = original(workload, revisions)
            if template is None:
                return None
            runtime = template.spec.runtime
            containers = [msgspec.structs.replace(c, env=[]) for c in runtime.sandbox.containers]
            sandbox = msgspec.structs.replace(runtime.sandbox, containers=containers)
            runtime = msgspec.structs.replace(runtime, sandbox=sandbox)
            spec = msgspec.structs.replace(template.spec, runtime=runtime)
            return msgspec.structs.replace(template, spec=spec)

        return restored

    with function_replaced(restored_template, make):
        yield


MUTANTS = (
    Mutant(
        "work-released-before-its-copy",
        "the Work goes before its copy, which then stays on a cell that was unreachable (I15)",
        _work_released_before_its_copy,
        triggers=("DeleteWorkload", "MoveWorkload"),
    ),
    Mutant(
        "unreachable-read-as-absent",
        "an unreachable cell is read as an empty one: Fly, April 2026 (I25)",
        _unreachable_read_as_absent,
        triggers=("AnswerFromCache",),
    ),
    Mutant(
        "hub-copy-replaced",
        "an edit deletes and creates what it should change, and all instances go (I37)",
        _copy_replaced_instead_of_changed,
        triggers=("ChangeImage",),
        violates=("I37",),
    ),
    Mutant(
        "works-outlive-their-binding",
        "a copy on the cell without an owner (I5)",
        _works_outlive_their_binding,
    ),
    Mutant(
        "projects-share-hub-namespace",
        "two tenants share a hub namespace (I17)",
        _projects_share_hub_namespace,
    ),
    Mutant(
        "available-outlives-its-cell",
        "a city without a cell is shown as Available: Karmada keeps the last status (I7)",
        _unreachable_cell_not_detected,
        triggers=("cell lost",),
    ),
    Mutant(
        "observed-generation-decreases",
        "a recreated hub copy lowers the observed generation of the project's object (I8)",
        _observed_generation_decreases,
        triggers=("EmptyHost", "DeleteObject"),
    ),
    Mutant(
        "available-without-deployments",
        "an empty set counts as healthy: Karmada #7455 (I23)",
        _available_without_deployments,
        triggers=("MoveWorkload",),
    ),
    Mutant(
        "status-rewritten-when-equal",
        "a hot loop of writes that change nothing: Fly, May 2025 (F28)",
        _status_rewritten_when_equal,
    ),
    Mutant(
        "evicted-before-replaced",
        "both colors are gone: a user report on Fly, May 2026 (I16)",
        _evicted_before_replaced,
        triggers=("AllowFallback",),
        violates=("I16",),
    ),
    Mutant(
        "older-report-advances-rollout",
        "every site gets an update before the first has reported: CrowdStrike, July 2024 (I30)",
        _older_report_advances_the_rollout,
        triggers=("OrderCities",),
        violates=("I30",),
    ),
    Mutant(
        "rollback-loses-environment",
        "a rollback restores the image and not the configuration (I31)",
        _rollback_loses_part_of_the_template,
        triggers=("OrderCities",),
        violates=("I31",),
    ),
    Mutant(
        "undo-of-a-restart",
        "an undo only removes the restart, and replaces every instance again (I38)",
        _undo_counts_a_restart,
        triggers=("UndoRollout",),
    ),
    Mutant(
        "workloads-compared-by-name",
        "a new owner of a name gets what the earlier owner left: reused S3 bucket names (I36)",
        _workloads_compared_by_name,
        triggers=("DeleteWorkload", "IsolateHost"),
        violates=("I36",),
    ),
    Mutant(
        "plane-removed-before-drained",
        "a revoked project's workloads keep running, and no controller can remove them (I15)",
        _plane_removed_before_drained,
        triggers=("RevokeProject",),
    ),
    Mutant(
        "rewritten-at-every-start",
        "an upgrade writes every row, and every watcher resyncs (F30, I24)",
        _rewritten_at_every_start,
        violates=("I24",),
    ),
    Mutant(
        "entitled-at-cleared",
        "a status is rebuilt and loses a value that is set once (I8)",
        _entitled_at_cleared,
        triggers=("Decide",),
    ),
    Mutant(
        "paused-leader-writes",
        "a lock without a fence: a leader paused past its lease writes: Jepsen, etcd (F16)",
        _paused_leader_writes,
        triggers=("2 managers",),
    ),
)
