"""Instance to server and back."""

from __future__ import annotations

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.conditions import find_condition
from datum_compute.api.instance import InstanceControl, SchedulingGate
from datum_compute.api.plane import cell_plane
from datum_compute.api.server import Phase, Server, ServerStatus
from datum_compute.planning.actions import Create, Delete, Patch, Wait
from datum_compute.planning.provisioning import plan_provisioning, provisioned_status
from datum_compute.testing.builders import NOW, an_instance

CELL = cell_plane("dfw")


def a_server(
    phase: Phase = "Running",
    *,
    reason: str = "",
    terminating: bool = False,
    owner: str = "",
    owned: bool = True,
) -> Server:
    plan = plan_provisioning(CELL, an_instance(0, ready=False), None, NOW)
    create = plan.actions[0]
    assert isinstance(create, Create)
    assert isinstance(create.object, Server)
    server = create.object
    metadata = msgspec.structs.replace(
        server.metadata, uid="server-uid", deletion_timestamp=NOW if terminating else None
    )
    tags = {labels.INSTANCE_TAG: owner} if owner else server.spec.tags
    if not owned:
        metadata = msgspec.structs.replace(metadata, owner_references=[])
    return msgspec.structs.replace(
        server,
        metadata=metadata,
        spec=msgspec.structs.replace(server.spec, tags=tags),
        status=ServerStatus(phase=phase, reason=reason, message="as seen", observed_generation=1),
    )


def test_a_server_is_tagged_with_its_instance_and_guarded_from_the_first_moment() -> None:
    server = a_server()
    instance = an_instance(0)
    tag = f"default/{instance.metadata.name}/{instance.metadata.uid}"
    assert server.spec.tags == {labels.INSTANCE_TAG: tag}
    assert server.metadata.finalizers == [labels.DRIVER_FINALIZER]
    assert server.metadata.owner_references[0].uid == instance.metadata.uid


def test_a_gated_instance_gets_no_server() -> None:
    instance = an_instance(0, ready=False)
    gated = InstanceControl(scheduling_gates=[SchedulingGate(name="Unheard-of")])
    spec = msgspec.structs.replace(instance.spec, controller=gated)
    plan = plan_provisioning(CELL, msgspec.structs.replace(instance, spec=spec), None, NOW)
    assert not [a for a in plan.actions if isinstance(a, Create)]


@pytest.mark.parametrize(
    ("phase", "reason", "programmed", "available"),
    [
        ("Pending", "", ("False", "ProgrammingInProgress"), ("False", "Starting")),
        ("Running", "", ("True", "Programmed"), ("True", "Available")),
        ("Sleeping", "", ("True", "Programmed"), ("True", "Asleep")),
        ("Stopped", "", ("True", "Programmed"), ("False", "Stopped")),
        (
            "Failed",
            "ImageUnavailable",
            ("False", "ImageUnavailable"),
            ("False", "ImageUnavailable"),
        ),
    ],
)
def test_conditions_follow_the_machine(
    phase: Phase, reason: str, programmed: tuple[str, str], available: tuple[str, str]
) -> None:
    status = provisioned_status(an_instance(0), a_server(phase, reason=reason), NOW)
    for type_, expected in (("Programmed", programmed), ("Available", available)):
        condition = find_condition(status.conditions, type_)
        assert condition is not None
        assert (condition.status, condition.reason) == expected


def test_the_observed_hash_is_that_of_the_running_machine_only() -> None:
    running = provisioned_status(an_instance(0), a_server("Running"), NOW)
    starting = provisioned_status(an_instance(0), a_server("Pending"), NOW)
    assert running.controller.observed_template_hash
    assert not starting.controller.observed_template_hash


def test_the_server_of_an_earlier_instance_is_waited_for() -> None:
    earlier = a_server(owner="ns/x/old", owned=False)
    (wait,) = plan_provisioning(CELL, an_instance(0), earlier, NOW).actions
    assert isinstance(wait, Wait)


def test_a_server_whose_tag_was_edited_still_goes_with_its_instance() -> None:
    """Seen: the server ran on after its workload was gone."""
    edited = a_server(owner="junk")
    delete, _ = plan_provisioning(CELL, an_instance(0, terminating=True), edited, NOW).actions
    assert isinstance(delete, Delete)


def test_an_instance_is_released_only_after_its_server_is_gone() -> None:
    going = an_instance(0, terminating=True)
    delete, wait = plan_provisioning(CELL, going, a_server(), NOW).actions
    assert isinstance(delete, Delete)
    assert isinstance(wait, Wait)
    (wait,) = plan_provisioning(CELL, going, a_server(terminating=True), NOW).actions
    assert isinstance(wait, Wait)
    (release,) = plan_provisioning(CELL, going, None, NOW).actions
    assert isinstance(release, Patch)
    assert release.patch["metadata"]["finalizers"] == [labels.INSTANCE_FINALIZER]
