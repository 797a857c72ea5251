"""Every change of a workload is recorded once as a revision, and a limited number is kept."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from datum_compute.api.compute.instance import Instance
from datum_compute.api.compute.workload import CityRestart, Workload
from datum_compute.api.compute.workload_revision import WorkloadRevision
from datum_compute.api.labels import CHANGED_BY, CITY_CODE, ROLLBACK, WORKLOAD_UID
from datum_compute.api.meta.codec import from_json
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import project_plane
from datum_compute.planning.plan import Create, Delete, Patch
from datum_compute.planning.workload.history import RequestedRollback
from datum_compute.planning.workload.revisions import (
    REVISIONS_KEPT,
    lacks_digests,
    plan_revisions,
)
from datum_compute.planning.workload.templates import template_hash, template_in

PLANE = project_plane("shop")


def workload(image: str = "web:1", *, replicas: int = 1, uid: str = "u1", **meta: Any) -> Workload:
    container = {"name": "app", "image": image, "env": [{"name": "KEY", "value": f"v-{image}"}]}
    placement = {
        "name": "default",
        "cityCodes": ["DFW"],
        "scaleSettings": {"minReplicas": replicas},
    }
    return from_json(
        {
            "metadata": {"name": "web", "namespace": "default", "uid": uid, **meta},
            "spec": {
                "template": {"spec": {"runtime": {"sandbox": {"containers": [container]}}}},
                "placements": [placement],
            },
        },
        Workload,
    )


def recorded(*workloads: Workload) -> list[WorkloadRevision]:
    """Return the revisions after each of these specs was recorded."""
    history: list[WorkloadRevision] = []
    for at, seen in enumerate(workloads):
        for action in plan_revisions(PLANE, seen, history).actions:
            match action:
                case Create(object=WorkloadRevision() as made):
                    metadata = msgspec.structs.replace(made.metadata, uid=f"r{at}")
                    history.append(msgspec.structs.replace(made, metadata=metadata))
                case Delete(ref=ref):
                    history = [r for r in history if r.metadata.name != ref.name]
    return history


def test_the_first_revision_is_number_one_and_owned_by_the_workload() -> None:
    (first,) = recorded(workload(annotations={CHANGED_BY: "ada"}))
    assert first.metadata.name == "web-1"
    assert (first.spec.revision, first.spec.actor, first.spec.changes) == (1, "ada", ["created"])
    (owner,) = first.metadata.owner_references
    assert (owner.kind, owner.uid, owner.controller) == ("Workload", "u1", True)


def test_no_revision_is_recorded_without_a_change() -> None:
    again = workload(annotations={"note": "new"}, generation=7)
    assert len(recorded(workload(), again, workload())) == 1


def test_an_explicit_default_is_no_change() -> None:
    container = {"name": "app", "image": "web:1", "env": [{"name": "KEY", "value": "v-web:1"}]}
    scale = {"minReplicas": 1, "progressDeadlineSeconds": 600}
    written_out = from_json(
        {
            "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
            "spec": {
                "template": {
                    "metadata": {"labels": {}},
                    "spec": {"runtime": {"sandbox": {"containers": [container]}}},
                },
                "placements": [{"name": "default", "cityCodes": ["DFW"], "scaleSettings": scale}],
            },
        },
        Workload,
    )
    assert len(recorded(workload(), written_out)) == 1


def test_changes_of_template_scale_and_cities_are_described() -> None:
    history = recorded(workload(), workload("web:2"), workload("web:2", replicas=3))
    assert [revision.spec.revision for revision in history] == [1, 2, 3]
    assert history[1].spec.changes == [
        "image app: 1 -> 2",
        "containers[app].env[KEY]: changed",
    ]
    assert history[2].spec.changes == ["scaled 1 -> 3"]


def undone(*, restores: int, replaces: int) -> dict[str, str]:
    return {ROLLBACK: RequestedRollback(restores, replaces).annotation}


def test_a_rollback_contains_the_number_of_the_restored_revision() -> None:
    rolled_back = workload(annotations=undone(restores=1, replaces=2))
    history = recorded(workload(), workload("web:2"), rolled_back)
    assert [revision.spec.restores for revision in history] == [None, None, 1]
    assert history[2].spec.changes[0] == "image app: 2 -> 1"


def test_a_deploy_of_an_earlier_template_is_no_rollback() -> None:
    history = recorded(workload(), workload("web:2"), workload())
    assert [revision.spec.restores for revision in history] == [None, None, None]
    assert history[2].spec.changes[0] == "image app: 2 -> 1"


def test_a_deploy_after_a_rollback_is_no_rollback_although_the_annotation_stays() -> None:
    """The annotation of ``rollout undo`` stays on the workload until the next undo."""
    left = undone(restores=1, replaces=2)
    history = recorded(
        workload(),
        workload("web:2"),
        workload(annotations=left),
        workload("web:2", annotations=left),
        workload(annotations=left),
    )
    assert [revision.spec.restores for revision in history] == [None, None, 1, None, None]


def test_a_rollback_is_recorded_when_the_change_before_it_was_not_recorded_yet() -> None:
    """The undo saw revision 2 as the newest one, while a third change was not recorded yet."""
    rolled_back = workload(annotations=undone(restores=1, replaces=2))
    history = recorded(workload(), workload("web:2"), workload("web:3"), rolled_back)
    assert history[3].spec.restores == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"restores": 1}', '{"restores": "x"}', "null"])
def test_a_malformed_rollback_annotation_is_ignored(text: str) -> None:
    history = recorded(workload(), workload("web:2"), workload(annotations={ROLLBACK: text}))
    assert history[2].spec.restores is None


def test_old_revisions_are_deleted_and_numbers_increase() -> None:
    history = recorded(*(workload(f"web:{n}") for n in range(REVISIONS_KEPT + 5)))
    assert [revision.spec.revision for revision in history] == list(range(6, REVISIONS_KEPT + 6))


def test_revisions_of_an_earlier_workload_are_neither_changed_nor_reused() -> None:
    old = recorded(workload(uid="old"), workload("web:2", uid="old"))
    plan = plan_revisions(PLANE, workload(uid="new"), old)
    (made,) = plan.actions
    assert isinstance(made, Create)
    assert made.object.metadata.name == "web-3"
    assert isinstance(made.object, WorkloadRevision)
    assert made.object.spec.changes == ["created"]


def test_a_workload_that_is_being_deleted_is_not_recorded() -> None:
    leaving = workload(deletionTimestamp="2026-01-01T00:00:00Z")
    assert plan_revisions(PLANE, leaving, []).is_settled


@pytest.mark.parametrize("secret", ["hunter2-long-secret"])
def test_values_of_variables_are_not_in_the_changes(secret: str) -> None:
    changed = from_json(
        {
            "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
            "spec": {
                "template": {
                    "spec": {
                        "runtime": {
                            "sandbox": {
                                "containers": [
                                    {
                                        "name": "app",
                                        "image": "web:1",
                                        "env": [{"name": "KEY", "value": secret}],
                                    }
                                ]
                            }
                        }
                    }
                },
                "placements": [
                    {"name": "x", "cityCodes": ["DFW"], "scaleSettings": {"minReplicas": 1}}
                ],
            },
        },
        Workload,
    )
    latest = recorded(workload(), changed)[-1]
    assert latest.spec.changes
    assert secret not in str(latest.spec.changes)
    assert Ref("default", latest.metadata.name) == Ref("default", "web-2")


# --- digests of images

DIGEST, OTHER_DIGEST = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def an_instance(
    seen: Workload, digest: str, *, name: str = "web-0", city: str = "DFW", image: str = "web:1"
) -> Instance:
    """Return an instance of the workload's template that reports the digest of its image."""
    return from_json(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "labels": {WORKLOAD_UID: seen.metadata.uid, CITY_CODE: city},
            },
            "spec": {
                "runtime": {"sandbox": {"containers": [{"name": "app", "image": image}]}},
                "controller": {"templateHash": template_hash(template_in(seen, city))},
            },
            "status": {"images": [{"name": "app", "image": image, "digest": digest}]},
        },
        Instance,
    )


def recorded_digests(
    seen: Workload, history: list[WorkloadRevision], *instances: Instance
) -> list[str] | None:
    """Return the digests that the plan adds to the newest revision; None if it writes nothing."""
    plan = plan_revisions(PLANE, seen, history, instances)
    if plan.is_settled:
        return None
    (patch,) = plan.actions
    assert isinstance(patch, Patch)
    assert patch.ref.name == history[-1].metadata.name
    return [image["digest"] for image in patch.patch["spec"]["images"]]


def test_a_revision_gets_the_digest_that_its_first_instance_reports() -> None:
    seen, history = workload(), recorded(workload())
    assert recorded_digests(seen, history) is None
    reports = (
        an_instance(seen, OTHER_DIGEST, name="web-1"),
        an_instance(seen, DIGEST, name="web-0"),
    )
    assert recorded_digests(seen, history, *reports) == [DIGEST]


def test_a_recorded_digest_deletes_no_revision() -> None:
    history = recorded(*(workload(f"web:{n}") for n in range(REVISIONS_KEPT)))
    seen = workload(f"web:{REVISIONS_KEPT - 1}")
    report = an_instance(seen, DIGEST, image=f"web:{REVISIONS_KEPT - 1}")
    assert len(history) == REVISIONS_KEPT
    assert recorded_digests(seen, history, report) == [DIGEST]


def test_the_digest_of_an_instance_with_another_template_is_not_recorded() -> None:
    """A tag may point to another image since then."""
    seen = workload(replicas=2)
    history = recorded(seen)
    outdated = an_instance(workload("web:2"), DIGEST)
    assert recorded_digests(seen, history, outdated) is None


def test_a_city_that_was_restarted_reports_the_digest_of_its_own_template() -> None:
    seen = workload()
    restarted = msgspec.structs.replace(
        seen.spec, restarts=[CityRestart(city_code="DFW", at="2027-01-01T00:00:00Z")]
    )
    seen = msgspec.structs.replace(seen, spec=restarted)
    history = recorded(workload(), seen)
    assert history[1].spec.changes == ["restarted DFW"]
    assert recorded_digests(seen, history, an_instance(workload(), DIGEST)) is None
    assert recorded_digests(seen, history, an_instance(seen, DIGEST)) == [DIGEST]


def test_a_digest_in_the_name_of_an_image_is_recorded_immediately() -> None:
    seen = workload(f"web:1@{DIGEST}")
    history = recorded(seen)
    assert [image.digest for image in history[0].spec.images] == [DIGEST]
    assert not lacks_digests(seen, history)


def test_a_recorded_digest_never_changes() -> None:
    seen = workload(f"web@{DIGEST}")
    assert recorded_digests(seen, recorded(seen), an_instance(seen, OTHER_DIGEST)) is None
