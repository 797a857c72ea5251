"""What must hold when the calm has done its work: desired equals actual, and nothing is left over.

Each check answers what is still missing, or nothing. Cells in ``lost`` are outside the healthy
core: nothing is asked of them, and what waits for them must say so.

What must hold after the calm of cells that never came back: nobody believes them any more.

What must hold of the record of changes after the calm: it ends with the present.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from datum_compute.api import labels
from datum_compute.api.codec import JsonObject, canonical, encode, typed
from datum_compute.api.identity import execution_namespace
from datum_compute.api.kinds import (
    CLAIM,
    CLUSTER,
    CLUSTER_POLICY,
    DEPLOYMENT,
    INSTANCE,
    IP_ALLOCATION,
    NAMESPACE,
    REVISION,
    SERVER,
    WORK,
    WORKLOAD,
    kind_of,
)
from datum_compute.api.plane import HUB, PLATFORM, cell_plane, project_plane
from datum_compute.api.workload import Workload
from datum_compute.api.workloadrevision import WorkloadRevision
from datum_compute.planning.workload.revisions import KEPT
from datum_compute.store.journal import ObjectKey
from testkit.sim.actors.users import NAMESPACE_NAME, Wanted
from testkit.sim.checks.expected_state import Core
from testkit.sim.checks.fallback import cities_in_use, i16_lost_shares_are_taken
from testkit.sim.checks.prefixes import i6_subnets_have_left
from testkit.sim.checks.projects import (
    i5_deleted_projects_leave_nothing,
    i6_homes_say_whose_they_are,
    i6_strangers_are_set_apart,
    i16_nothing_runs_without_access,
)
from testkit.sim.checks.quota import (
    i2_buckets_add_up,
    i2_grants_are_used_up,
    i2_no_claim_outlives_its_slot,
    i6_workloads_count_what_runs,
    i22_waiting_is_for_quota,
)
from testkit.sim.checks.state import Truth, condition, is_terminating, is_true
from testkit.sim.scenario.draw import NAMES

_GOOD = ("Available", "Ready", "ReplicasReady")


def i7_nothing_outlives_its_cell(truth: Truth, core: Core) -> str:
    """I7: nothing that is on lost cells only is called available or ready in its project."""
    for project in core.projects if core.lost else ():
        plane = project_plane(project)
        for name, row in _on_lost_cells(truth, core, plane):
            called = [type_ for type_ in _GOOD if is_true(row, type_)]
            ready = (row.get("status") or {}).get("readyReplicas", 0)
            if called or ready:
                return f"{plane} {name}: {called}, {ready} ready, and its cell is lost"
    return ""


def is_of_any(instance: JsonObject, cells: frozenset[str]) -> bool:
    """By either label: operators edit one at a time."""
    told = instance["metadata"].get("labels", {})
    return told.get(labels.CITY_CODE, "").lower() in cells or told.get(labels.CELL, "") in cells


def _on_lost_cells(truth: Truth, core: Core, plane: str) -> Iterator[tuple[str, JsonObject]]:
    for key, row in truth.of_resource(plane, INSTANCE.resource):
        if is_of_any(row, core.lost) and not is_terminating(row):
            yield f"instance {key.name}", row
    for key, row in truth.of_resource(plane, DEPLOYMENT.resource):
        if row["spec"].get("cityCode", "").lower() in core.lost and not is_terminating(row):
            yield f"deployment {key.name}", row
    for key, row in truth.of_resource(plane, WORKLOAD.resource):
        wanted = core.wanted.get((plane.partition("/")[2], key.name))
        if wanted is None or wanted.fallback:
            continue  # that another city has taken its share is checked with the machines
        if all(city.lower() in core.lost for city in wanted.cities):
            yield f"workload {key.name}", row


def i13_history_ends_with_the_present(truth: Truth, core: Core) -> str:
    """I13: the newest revision of a workload is what it asks for; each differs from the one before;
    no more are kept than promised."""
    for project in core.projects:
        plane = project_plane(project)
        rows = [row for _, row in truth.of_resource(plane, REVISION.resource)]
        revisions = [typed(row, WorkloadRevision) for row in rows]
        workloads = (row for _, row in truth.of_resource(plane, WORKLOAD.resource))
        for row in (row for row in workloads if row.get("spec")):
            missing = _misrecorded(typed(row, Workload), revisions)
            if missing:
                return f"{plane}: {missing}"
    return ""


def _misrecorded(workload: Workload, revisions: list[WorkloadRevision]) -> str:
    uid, name = workload.metadata.uid, workload.metadata.name
    own = sorted(
        (r for r in revisions if r.spec.workload_ref.uid == uid), key=lambda r: r.spec.revision
    )
    if not own:
        return f"{name} has no revision"
    asked = [(canonical(r.spec.template), canonical(r.spec.placements)) for r in own]
    present = (canonical(workload.spec.template), canonical(workload.spec.placements))
    if asked[-1] != present:
        return f"the newest revision of {name} ({own[-1].spec.revision}) is not what it asks for"
    numbers = [revision.spec.revision for revision in own]
    twice = any(before == after for before, after in itertools.pairwise(asked))
    if twice or len(set(numbers)) != len(numbers):
        return f"a change of {name} is on record twice: {numbers}"
    return f"{len(own)} revisions of {name} are kept" if len(own) > KEPT else ""


_OF_A_WORKLOAD = re.compile(rb'"(' + "|".join(NAMES).encode() + rb')[:"-]')
_UID_HASH = re.compile(r"-[0-9a-f]{10}(?=-|$)")
_POISON = "poison"
_COUNTS = (
    "replicas",
    "readyReplicas",
    "availableReplicas",
    "updatedReplicas",
    "currentReplicas",
    "desiredReplicas",
)


def what_is_missing(truth: Truth, core: Core) -> str:
    """I6: the first thing in which the world is not yet as it is wanted."""
    for check in (*(_SHORT_OF_QUOTA if core.is_tight else _WITH_PLENTY), *_ALWAYS):
        missing = check(truth, core)
        if missing:
            return missing
    return ""


def i6_machines_are_as_wanted(truth: Truth, core: Core) -> str:
    """I6, I16: on every cell exactly the machines that users want there."""
    placed = {key: cities_in_use(truth, core, *key) for key in core.wanted}
    if moving := next((cities for cities in placed.values() if isinstance(cities, str)), None):
        return moving
    wanted = sorted(
        (core.cell_of(city), want.image)
        for key, want in core.wanted.items()
        for city in placed[key]
        if city.lower() not in core.lost
        for _ in range(want.replicas)
    )
    actual = sorted(_machines(truth, core))
    return "" if actual == wanted else f"machines run {actual}, wanted {wanted}"


def _machines(truth: Truth, core: Core) -> Iterator[tuple[str, str]]:
    for cell, provider in truth.providers.items():
        name = cell.partition("/")[2]
        for machine_id, machine in provider.alive().items():
            if name not in core.lost and f"/{_POISON}" not in machine_id:
                yield name, machine.image


def i3_every_machine_has_an_owner(truth: Truth, core: Core) -> str:
    """I3: no machine without a Server of its very uid."""
    for cell, machine_id in truth.machines():
        namespace, name, uid = machine_id.split("/")
        row = truth.rows.get(cell, {}).get(ObjectKey(SERVER.resource, namespace, name))
        if cell.partition("/")[2] not in core.lost and (
            row is None or row["metadata"]["uid"] != uid
        ):
            return f"machine {machine_id} on {cell} has no server"
    return ""


def i6_workloads_report_it(truth: Truth, core: Core) -> str:
    """I6, I7: every workload says what is true, of its newest generation."""
    for project in core.projects:
        plane = project_plane(project)
        rows = {key.name: row for key, row in truth.of_resource(plane, WORKLOAD.resource)}
        names = sorted(name for owner, name in core.wanted if owner == project)
        if sorted(rows) != names:
            return f"{plane} has the workloads {sorted(rows)}, wanted {names}"
        for name in names:
            missing = _misreported(rows[name], core, core.wanted[(project, name)])
            if missing:
                return f"{plane} {name}: {missing}"
    return ""


def _misreported(row: JsonObject, core: Core, wanted: Wanted) -> str:
    if is_terminating(row):
        return "it is terminating"
    if not core.is_whole(wanted):
        return ""
    status = row.get("status", {})
    counts = [status.get(name, 0) for name in _COUNTS]
    replicas = wanted.replicas * len(wanted.cities)
    if counts != [replicas] * len(_COUNTS):
        return f"it counts {counts}, there are {replicas}"
    if status.get("observedGeneration") != row["metadata"]["generation"]:
        return "its status is about an older generation"
    return ""


def i6_copies_are_as_on_the_cells(truth: Truth, core: Core) -> str:
    """I6: hub and projects show exactly the instances of the cells, equally ready."""
    on_cells: dict[str, str] = {}
    for cell in core.cells:
        if cell not in core.lost:
            on_cells.update(_instances(truth, cell_plane(cell)))
    on_hub = _instances(truth, HUB, core.lost)
    if on_hub != on_cells:
        return f"the hub shows {_difference(on_hub, on_cells)}"
    shown: dict[str, str] = {}
    for project in core.projects:
        homes = _homes(truth, project)
        for key, row in truth.of_resource(project_plane(project), INSTANCE.resource):
            if not is_of_any(row, core.lost):
                shown[f"{homes.get(key.namespace)}/{key.name}"] = _state(row)
    return "" if shown == on_cells else f"projects show {_difference(shown, on_cells)}"


def _instances(truth: Truth, plane: str, lost: frozenset[str] = frozenset()) -> dict[str, str]:
    return {
        f"{key.namespace}/{key.name}": _state(row)
        for key, row in truth.of_resource(plane, INSTANCE.resource)
        if not key.name.startswith(_POISON) and not is_of_any(row, lost)
    }


def _homes(truth: Truth, project: str) -> dict[str, str]:
    """Namespaces of a project, and what they are called on hub and cells."""
    return {
        key.name: f"ns-{row['metadata']['uid']}"
        for key, row in truth.of_resource(project_plane(project), "namespaces")
    }


def _state(row: JsonObject) -> str:
    ready = condition(row, "Ready")
    image = row["spec"]["runtime"]["sandbox"]["containers"][0]["image"]
    said = (ready["status"], ready.get("lastTransitionTime")) if ready else None
    return f"{image} Ready={said}"


def _difference(left: Mapping[str, str], right: Mapping[str, str]) -> str:
    odd = [
        f"{name}: {left.get(name)} instead of {right.get(name)}"
        for name in sorted({*left, *right})
        if left.get(name) != right.get(name)
    ]
    return "; ".join(odd[:4])


def i22_blockers_are_named(truth: Truth, core: Core) -> str:
    """I22: whatever is not as wanted says why."""
    for project in core.projects:
        plane = project_plane(project)
        for resource in (WORKLOAD.resource, DEPLOYMENT.resource):
            for key, row in truth.of_resource(plane, resource):
                status = row.get("status", {})
                if status.get("readyReplicas", 0) >= status.get("desiredReplicas", 1):
                    continue
                found = condition(row, "Available")
                if found is None or not found.get("reason") or not found.get("message"):
                    return f"{plane} {resource} {key.name} is not ready and does not say why"
    return ""


def i6_cells_are_known_to_answer(truth: Truth, core: Core) -> str:
    """I6, I7: the hub knows which cells answer, and that its copies are with those."""
    for key, row in truth.of_resource(HUB, CLUSTER.resource):
        if is_true(row, "Ready") == (key.name in core.lost):
            return f"the hub does not know whether {key.name} answers"
    for key, row in truth.of_resource(HUB, WORK.resource):
        cell = key.namespace.removeprefix(execution_namespace(""))
        if cell in core.lost or key.name == _POISON:
            continue
        if not is_true(row, "Applied") or _copy_of(truth, cell_plane(cell), row) is None:
            return f"work {key.name} is not applied on {cell}"
    return ""


def _copy_of(truth: Truth, cell: str, work: JsonObject) -> JsonObject | None:
    manifest = work["spec"]["workload"]["manifests"][0]
    metadata = manifest["metadata"]
    kind = kind_of(manifest["apiVersion"], manifest["kind"])
    if kind is None:
        return None
    key = ObjectKey(kind.resource, metadata.get("namespace", ""), metadata["name"])
    return truth.rows.get(cell, {}).get(key)


def i5_no_home_outlives_its_source(truth: Truth, core: Core) -> str:
    """I5: hub and cells hold a namespace, and the hub a policy for it, only as long as the project
    namespace it stands for is there, or a lost cell may have something of it. A hub that came back
    empty has forgotten what cells hold."""
    sources = {home for project in core.projects for home in _homes(truth, project).values()}
    sources |= set(_homes_on(truth, core.lost))
    cells = [] if HUB in truth.emptied else [c for c in core.cells if c not in core.lost]
    for plane in (HUB, *map(cell_plane, cells)):
        for resource in (NAMESPACE.resource, CLUSTER_POLICY.resource):
            for key, _ in truth.of_resource(plane, resource):
                if key.name.startswith("ns-") and key.name not in sources:
                    return f"{plane} still has {resource} {key.name}; its source is gone"
    return ""


def _homes_on(truth: Truth, lost: frozenset[str]) -> Iterator[str]:
    """Those that Works of lost cells stand for."""
    away = {execution_namespace(cell) for cell in lost}
    for key, row in truth.of_resource(HUB, WORK.resource):
        if key.namespace in away:
            metadata = row["spec"]["workload"]["manifests"][0]["metadata"]
            yield metadata.get("namespace") or metadata["name"]


def i5_no_prefix_outlives_its_network(truth: Truth, core: Core) -> str:
    """I5: a prefix is on record for a holder that is there, or for what a lost cell may have."""
    if core.lost or truth.emptied:
        return ""
    held = {row["metadata"]["uid"] for rows in truth.rows.values() for row in rows.values()}
    for key, row in truth.of_resource(PLATFORM, IP_ALLOCATION.resource):
        if row["spec"]["holderUid"] not in held:
            return f"{key.name} is on record for a holder that is gone"
    return ""


Settled = Callable[[Truth, Core], str]

_WITH_PLENTY: tuple[Settled, ...] = (i6_machines_are_as_wanted, i6_workloads_report_it)
_SHORT_OF_QUOTA: tuple[Settled, ...] = (
    i2_grants_are_used_up,
    i22_waiting_is_for_quota,
    i6_workloads_count_what_runs,
)
_ALWAYS: tuple[Settled, ...] = (
    i2_buckets_add_up,
    i2_no_claim_outlives_its_slot,
    i3_every_machine_has_an_owner,
    i6_copies_are_as_on_the_cells,
    i13_history_ends_with_the_present,
    i6_subnets_have_left,
    i22_blockers_are_named,
    i6_cells_are_known_to_answer,
    i7_nothing_outlives_its_cell,
    i5_no_home_outlives_its_source,
    i5_no_prefix_outlives_its_network,
    i5_deleted_projects_leave_nothing,
    i16_nothing_runs_without_access,
    i16_lost_shares_are_taken,
    i6_strangers_are_set_apart,
    i6_homes_say_whose_they_are,
)


def what_is_left(truth: Truth, core: Core) -> str:
    """I5: deleted workloads leave nothing on any plane, and no machine."""
    left = [
        f"{cell} {machine_id}"
        for cell, machine_id in truth.machines()
        if cell.partition("/")[2] not in core.lost and f"/{_POISON}" not in machine_id
    ]
    away = {execution_namespace(cell) for cell in core.lost}
    for plane, rows in truth.rows.items():
        if plane.partition("/")[2] in core.lost and plane.startswith("cell/"):
            continue
        for key, row in rows.items():
            odd = _POISON in key.name or key.resource.startswith("events")
            odd = odd or _is_held_by(row, core.lost)
            if not odd and key.namespace not in away and _OF_A_WORKLOAD.search(encode(row)):
                left.append(f"{plane} {key.resource} {key.namespace}/{key.name}")
    return ", ".join(sorted(left)[:8])


def _is_held_by(row: JsonObject, lost: frozenset[str]) -> bool:
    """A quota claim of a lost cell: what it was given for may run on, so it is not given away."""
    cell = row["metadata"].get("labels", {}).get(labels.SOURCE_CLUSTER, "")
    return row.get("kind") == CLAIM.kind and cell in lost


def picture(truth: Truth, core: Core) -> tuple[str, ...]:
    """I21: the final state without what may differ from run to run: ids, versions, times."""
    return tuple(sorted(_pictured(truth, (*map(project_plane, core.projects), HUB))))


def _pictured(truth: Truth, planes: Iterable[str]) -> Iterator[str]:
    for plane in planes:
        for key, row in truth.rows.get(plane, {}).items():
            if key.resource not in _PICTURED or key.name.startswith(_POISON):
                continue
            status = row.get("status", {})
            conditions = sorted(
                f"{c['type']}={c['status']}/{c['reason']}" for c in status.get("conditions", ())
            )
            counts = [status.get(name, 0) for name in _COUNTS]
            where = key.namespace if key.namespace == NAMESPACE_NAME else "home"
            name = _UID_HASH.sub("-*", key.name)  # names of deployments hold a hash of a uid
            yield f"{plane} {key.resource} {where}/{name} {counts} {' '.join(conditions)}"


_PICTURED = (WORKLOAD.resource, DEPLOYMENT.resource, INSTANCE.resource)
