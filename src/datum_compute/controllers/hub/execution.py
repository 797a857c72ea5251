"""Work -> its copy on the cell, and the copy's status back. Removal is released only with proof."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.identity import execution_namespace
from datum_compute.api.kinds import CONFIG_MAP, DEPLOYMENT, NAMESPACE, SECRET, WORK, kind_of
from datum_compute.api.meta import KindInfo, Ref
from datum_compute.api.plane import HUB, PlaneName, cell_plane
from datum_compute.api.work import Work
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.actions import Plan, drop_finalizer
from datum_compute.planning.execution import plan_execution, plan_orphans, plan_unreachable
from datum_compute.runtime.controller import Controller, for_, watches
from datum_compute.runtime.informer import Change
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Later, Outcome, Terminal
from datum_compute.runtime.view import View

# What a cell gets besides namespaces, which stay.
_COPIED: tuple[KindInfo[Any], ...] = (DEPLOYMENT, CONFIG_MAP, SECRET)


async def reconcile(context: Context, key: Key) -> Outcome:
    work = context.planes.need(key.plane).read(WORK).get(key.ref)
    if work is None:
        return await _remove_orphans(context, key)
    manifest = work.spec.workload.manifests[0]
    kind = kind_of(manifest["apiVersion"], manifest["kind"])
    if kind is None:
        return Terminal(f"{manifest['apiVersion']} {manifest['kind']} is not a kind cells serve")
    cell = _cell_of(key)
    view = context.planes.find(cell)
    if view is None:
        return await carry_out(context.planes, plan_unreachable(work, cell, context.now()))
    ref = Ref(manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"])
    copy = view.read(kind).get(ref)
    if work.is_terminating and copy is None:
        return await _release(context, work, view, kind, ref)
    plan = plan_execution(cell, work, kind, copy, context.now())
    return await carry_out(context.planes, plan)


async def _release(
    context: Context, work: Work, view: View, kind: KindInfo[Any], ref: Ref
) -> Outcome:
    """Let the tombstone go once the cell itself says that the copy is gone."""
    if await view.live(kind, ref) is not None:
        return Later(1)
    release = drop_finalizer(HUB, WORK, work, labels.EXECUTION_FINALIZER)
    return await carry_out(context.planes, Plan(tuple(release)))


async def _remove_orphans(context: Context, key: Key) -> Outcome:
    """A create that was under way when the Work went may have landed after it. The hub is asked
    itself: a Work that only our view lacks is no reason to remove anything."""
    view = context.planes.find(_cell_of(key))
    if view is None:
        return Done()
    orphans = [
        action
        for kind in _COPIED
        for action in plan_orphans(
            view.plane, key.ref, kind, view.read(kind).labelled(labels.MANAGED, "true")
        ).actions
    ]
    if orphans and await context.planes.hub.live(WORK, key.ref) is None:
        return await carry_out(context.planes, Plan(tuple(orphans)))
    return Done()


def _cell_of(key: Key) -> PlaneName:
    return cell_plane(key.ref.namespace.removeprefix(execution_namespace("")))


def from_copy(_view: View, change: Change[Any]) -> Iterable[Key]:
    annotations = change.latest.metadata.annotations
    if labels.WORK_NAME in annotations and labels.WORK_NAMESPACE in annotations:
        ref = Ref(annotations[labels.WORK_NAMESPACE], annotations[labels.WORK_NAME])
        yield Key(HUB, ref)


def _by_cell(key: Key) -> str:
    return key.ref.namespace


CONTROLLER = Controller(
    name="execution",
    role="hub",
    reconcile=reconcile,
    edges=(
        for_(WORK),
        watches(NAMESPACE, from_copy, on="cell"),
        *(watches(kind, from_copy, on="cell") for kind in _COPIED),
    ),
    finalizers=(labels.EXECUTION_FINALIZER,),
    lane=_by_cell,  # one cell that never answers holds up no other
)
