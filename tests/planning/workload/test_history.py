"""How revisions describe changes, and which revision an undo restores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from datum_compute.api.compute.workload import Workload, WorkloadRollout
from datum_compute.api.compute.workload_revision import WorkloadRevision
from datum_compute.api.labels import RESTARTED_AT
from datum_compute.api.meta.codec import from_json
from datum_compute.planning.workload.history import (
    UndoPart,
    describe_changes,
    find_undo_target,
)
from datum_compute.planning.workload.templates import template_hash

FIRST, SECOND = "2027-01-01T00:00:00.000001Z", "2027-01-02T00:00:00.000001Z"


def workload(
    image: str = "web:v1",
    *,
    replicas: int = 1,
    cities: Sequence[str] = ("DFW",),
    restarted_at: str = "",
    restarts: Mapping[str, str] | None = None,
    env: str = "",
) -> Workload:
    container: dict[str, Any] = {"name": "app", "image": image}
    if env:
        container["env"] = [{"name": "KEY", "value": env}]
    annotations = {RESTARTED_AT: restarted_at} if restarted_at else {}
    placement = {
        "name": "default",
        "cityCodes": list(cities),
        "scaleSettings": {"minReplicas": replicas},
    }
    return from_json(
        {
            "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
            "spec": {
                "template": {
                    "metadata": {"annotations": annotations},
                    "spec": {"runtime": {"sandbox": {"containers": [container]}}},
                },
                "placements": [placement],
                "restarts": [{"cityCode": c, "at": at} for c, at in (restarts or {}).items()],
            },
        },
        Workload,
    )


def history(*workloads: Workload) -> list[WorkloadRevision]:
    return [
        from_json(
            {
                "metadata": {"name": f"web-{number}"},
                "spec": {
                    "workloadRef": {"name": "web", "uid": "u1"},
                    "revision": number,
                    "templateHash": template_hash(found.spec.template),
                    "template": msgspec.to_builtins(found.spec.template),
                    "placements": msgspec.to_builtins(found.spec.placements),
                },
            },
            WorkloadRevision,
        )
        for number, found in enumerate(workloads, 1)
    ]


REGISTRY = "registry.example:5000/team/web"
OLD, NEW = "sha256:" + "a" * 64, "sha256:" + "b" * 64


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        (workload(), workload("web:v2"), ["image app: v1 -> v2"]),
        (workload("web"), workload("web:v2"), ["image app: web -> web:v2"]),
        (workload("web:v1"), workload("api:v1"), ["image app: web:v1 -> api:v1"]),
        (workload(f"{REGISTRY}:1"), workload(f"{REGISTRY}:2"), ["image app: 1 -> 2"]),
        (
            workload(f"{REGISTRY}@{OLD}"),
            workload(f"{REGISTRY}@{NEW}"),
            ["image app: sha256:aaaaaaaaaaaa -> sha256:bbbbbbbbbbbb"],
        ),
        (workload(), workload(restarted_at=FIRST), ["restarted"]),
        (workload(restarted_at=FIRST), workload(restarted_at=SECOND), ["restarted"]),
        (workload(restarted_at=FIRST), workload(), ["restart removed"]),
        (workload(), workload(restarts={"DFW": FIRST}), ["restarted DFW"]),
        (workload(restarts={"DFW": FIRST}), workload(), ["restart of DFW removed"]),
        (
            workload(cities=("DFW", "IAD"), restarts={"IAD": FIRST}),
            workload(),
            ["cities: DFW,IAD -> DFW"],
        ),
        (workload(replicas=2), workload(replicas=3), ["scaled 2 -> 3"]),
        (workload(), workload(cities=("DFW", "IAD")), ["cities: DFW -> DFW,IAD"]),
        (
            workload(),
            workload("web:v2", env="hunter2", replicas=2),
            ["image app: v1 -> v2", "scaled 1 -> 2", "containers[app].env[KEY]: added"],
        ),
    ],
)
def test_a_change_is_described_by_what_changed(
    before: Workload, after: Workload, lines: list[str]
) -> None:
    assert describe_changes(before.spec, after.spec) == lines


def test_a_rollback_to_an_earlier_restart_is_not_described_as_a_restart() -> None:
    before, after = workload("web:v2", restarted_at=SECOND), workload(restarted_at=FIRST)
    lines = describe_changes(before.spec, after.spec, is_rollback=True)
    assert lines == ["image app: v2 -> v1"]


def undo_target(current: Workload, *earlier: Workload, part: UndoPart | None = None) -> int | None:
    found = find_undo_target(current, history(*earlier, current), part)
    return None if found is None else found.spec.revision


def test_an_undo_after_a_restart_restores_the_template_before_the_last_other_change() -> None:
    """Seen: the undo restored revision 2, which differs only in the restart."""
    current = workload("web:v2", restarted_at=FIRST)
    assert undo_target(current, workload(), workload("web:v2")) == 1
    assert undo_target(current, workload(), workload("web:v2"), part="template") == 1


def test_an_undo_of_a_change_after_a_restart_restores_the_restarted_template() -> None:
    restarted = workload(restarted_at=FIRST)
    current = workload("web:v2", restarted_at=FIRST)
    assert undo_target(current, workload(), restarted) == 2


def test_nothing_can_be_undone_when_only_restarts_were_made() -> None:
    assert undo_target(workload(restarted_at=SECOND), workload(), workload(replicas=2)) is None


def test_an_undo_of_a_change_that_is_not_recorded_yet_restores_the_newest_revision() -> None:
    found = find_undo_target(workload("web:v3"), history(workload(), workload("web:v2")), None)
    assert found is not None
    assert found.spec.revision == 2


def test_an_undo_of_the_scale_ignores_revisions_with_the_same_scale() -> None:
    earlier = (workload(replicas=2), workload("web:v2", replicas=3))
    assert undo_target(workload("web:v3", replicas=3), *earlier, part="scale") == 1


def test_an_undo_after_a_rolled_back_restart_restores_the_template_that_the_cities_run() -> None:
    """The cities run revision 2. Restoring it replaces no instance."""
    failed = workload("web:v2", restarted_at=FIRST)
    rollout = WorkloadRollout(failed_template_hash=template_hash(failed.spec.template))
    status = msgspec.structs.replace(failed.status, rollout=rollout)
    failed = msgspec.structs.replace(failed, status=status)
    revisions = history(workload(), workload("web:v2"), failed)
    found = find_undo_target(failed, revisions, None)
    assert found is revisions[1]
