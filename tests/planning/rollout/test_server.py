"""The Server of an Instance, the Instance of a Server, and the published ports of a deployment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.compute.data_sources import ConfigMapVolume, Volume
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import (
    READY,
    Container,
    ContainerPort,
    Instance,
    InstanceControl,
    InstanceStatus,
    ResourceAmounts,
    SchedulingGate,
)
from datum_compute.api.compute.server import (
    Phase,
    Server,
    ServerSpec,
    ServerStatus,
    machine_fingerprint,
)
from datum_compute.api.conditions import (
    FALSE,
    UNKNOWN,
    Condition,
    ConditionStatus,
    ConditionValue,
    Reason,
    find_condition,
    make_condition,
    unknown_conditions,
    with_condition,
)
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE
from datum_compute.api.meta.codec import to_json
from datum_compute.api.meta.objects import ObjectMeta, OwnerReference, Ref, owner_reference, ref_of
from datum_compute.api.planes import cell_plane
from datum_compute.planning.network.addresses import interface_of
from datum_compute.planning.plan import Create, Delete, Patch, PatchStatus, Wait
from datum_compute.planning.quota.claims import InstanceSize
from datum_compute.planning.rollout.server import (
    RESYNC_S,
    Match,
    accepts_connections,
    find_owner,
    instance_references,
    instance_tag,
    is_server_of,
    last_ports,
    machine_conditions,
    plan_endpoints,
    plan_provisioning,
    provisioned_status,
    published_ports,
    refs_to_reconcile,
)
from testkit.builders import NOW, a_deployment, a_template, an_attachment, an_instance

CELL = cell_plane("dfw")


def a_server(
    phase: Phase = "Running",
    *,
    reason: str = "",
    terminating: bool = False,
    status: ServerStatus | None = None,
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
        metadata = msgspec.structs.replace(metadata, owner_references=[], labels={})
    return msgspec.structs.replace(
        server,
        metadata=metadata,
        spec=msgspec.structs.replace(server.spec, tags=tags),
        status=status
        or ServerStatus(phase=phase, reason=reason, message="as seen", observed_generation=1),
    )


def status_of(instance: Instance, server: Server | None) -> InstanceStatus:
    return provisioned_status(instance, server, machine_conditions(instance, server), NOW)


def condition_value(status: InstanceStatus, type_: str) -> ConditionValue:
    condition = find_condition(status.conditions, type_)
    assert condition is not None
    return ConditionValue(condition.status, condition.reason, condition.message)


def test_a_server_is_created_with_tag_and_finalizer() -> None:
    server = a_server()
    instance = an_instance(0)
    tag = f"default/{instance.metadata.name}/{instance.metadata.uid}"
    assert server.spec.tags[labels.INSTANCE_TAG] == tag
    assert server.metadata.finalizers == [labels.DRIVER_FINALIZER]
    assert server.metadata.owner_references[0].uid == instance.metadata.uid


def test_a_new_server_has_the_workload_of_its_instance_as_tags() -> None:
    found = {labels.WORKLOAD_NAME: "web", labels.WORKLOAD_UID: "uid-1", labels.CITY_CODE: "DFW"}
    instance = an_instance(0)
    metadata = msgspec.structs.replace(
        instance.metadata, labels={**instance.metadata.labels, **found}
    )
    instance = msgspec.structs.replace(instance, metadata=metadata)
    (create,) = plan_provisioning(CELL, instance, None, NOW).actions[:1]
    assert isinstance(create, Create)
    assert isinstance(create.object, Server)
    assert create.object.spec.tags.items() >= found.items()


def test_a_server_of_an_earlier_release_gets_no_tags_of_its_workload() -> None:
    server = a_server()
    tags = {labels.INSTANCE_TAG: server.spec.tags[labels.INSTANCE_TAG]}
    old = msgspec.structs.replace(server, spec=msgspec.structs.replace(server.spec, tags=tags))
    planned = plan_provisioning(CELL, an_instance(0), old, NOW).actions
    assert [action for action in planned if isinstance(action, Patch)] == []


def test_a_gated_instance_gets_no_server() -> None:
    instance = an_instance(0, ready=False)
    gated = InstanceControl(scheduling_gates=[SchedulingGate(name="Unheard-of")])
    spec = msgspec.structs.replace(instance.spec, controller=gated)
    plan = plan_provisioning(CELL, msgspec.structs.replace(instance, spec=spec), None, NOW)
    assert not [a for a in plan.actions if isinstance(a, Create)]


@pytest.mark.parametrize(
    ("phase", "reason", "programmed", "available"),
    [
        ("Pending", "", ("Unknown", "ProgrammingInProgress"), ("False", "Starting")),
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
    status = status_of(an_instance(0), a_server(phase, reason=reason))
    assert programmed == condition_value(status, "Programmed")[:2]
    assert available == condition_value(status, "Available")[:2]


@pytest.mark.parametrize(
    ("phase", "echoed"),
    [("Pending", False), ("Running", True), ("Failed", True), ("Sleeping", True)],
)
def test_the_observed_hash_is_the_template_that_the_driver_applied(
    phase: Phase, echoed: bool
) -> None:
    """It does not depend on readiness: a crash of the new template is recorded as such."""
    status = status_of(an_instance(0), a_server(phase))
    assert bool(status.controller.observed_template_hash) is echoed


def test_a_restart_of_the_same_machine_keeps_the_observed_hash() -> None:
    """Otherwise every restart of a crash loop would look like a step of the rollout."""
    instance = an_instance(0)
    spec = a_server().spec
    fingerprint = machine_fingerprint(spec)
    crashed = status_of(instance, a_server("Failed"))
    recorded = msgspec.structs.replace(instance, status=crashed)

    def observed_hash(**status: Any) -> str:
        pending = ServerStatus(phase="Pending", observed_generation=1, **status)
        applied = status_of(recorded, a_server(status=pending)).controller
        return applied.observed_template_hash

    assert observed_hash(spec_fingerprint=fingerprint) == spec.template_hash
    assert observed_hash(restarts=1) == spec.template_hash, "of an earlier release"
    assert observed_hash(spec_fingerprint="1-another", restarts=1) == ""
    assert observed_hash() == "", "the machine is gone"


def test_an_unobserved_machine_makes_ready_unknown_and_keeps_other_fields() -> None:
    running = ServerStatus(phase="Running", addresses=["10.0.0.9"], observed_generation=1)
    instance = an_instance(0)
    before = status_of(instance, a_server(status=running))
    recorded = msgspec.structs.replace(instance, status=before)
    server = a_server(status=msgspec.structs.replace(running, phase="Unknown"))
    another = msgspec.structs.replace(server.spec, template_hash="another")
    server = msgspec.structs.replace(server, spec=another)
    (patch,) = [
        action
        for action in plan_provisioning(CELL, recorded, server, NOW).actions
        if isinstance(action, PatchStatus)
    ]
    conditions = {c["type"]: c for c in patch.status["conditions"]}
    assert patch.status.keys() == {"conditions"}, "addresses, template hash and size stay"
    assert (conditions["Ready"]["status"], conditions["Ready"]["reason"]) == (
        "Unknown",
        "NotObserved",
    )
    assert conditions["Programmed"] == to_json(find_condition(before.conditions, "Programmed"))


def test_a_recorded_crash_becomes_unknown_while_the_machine_is_unobserved() -> None:
    """A crash that was observed before the engine was lost may be over."""
    instance = an_instance(0, ready=False)
    crashed = status_of(instance, a_server("Failed", reason="InstanceCrashing"))
    recorded = msgspec.structs.replace(instance, status=crashed)
    plan = plan_provisioning(CELL, recorded, a_server("Unknown", reason="NotObserved"), NOW)
    (patch,) = [action for action in plan.actions if isinstance(action, PatchStatus)]
    (ready,) = [c for c in patch.status["conditions"] if c["type"] == "Ready"]
    assert (ready["status"], ready["reason"]) == ("Unknown", "NotObserved")


def test_a_crash_is_reported_with_the_message_restarts_and_last_lines() -> None:
    crashed = ServerStatus(
        phase="Failed",
        reason="InstanceCrashing",
        message="the process exited with code 137",
        restarts=3,
        exit_code=137,
        last_lines=["loading", "out of memory"],
        observed_generation=1,
    )
    available = condition_value(status_of(an_instance(0), a_server(status=crashed)), "Available")
    assert available == (
        "False",
        "InstanceCrashing",
        "the process exited with code 137; restarted 3 times; last lines: loading | out of memory",
    )


@pytest.mark.parametrize(
    ("restarts", "message"),
    [(0, "not restarted yet"), (1, "restarted once"), (2, "restarted 2 times")],
)
def test_restarts_are_described_in_words(restarts: int, message: str) -> None:
    crashed = ServerStatus(
        phase="Failed", reason="InstanceCrashing", restarts=restarts, observed_generation=1
    )
    available = condition_value(status_of(an_instance(0), a_server(status=crashed)), "Available")
    assert available == ("False", "InstanceCrashing", message)


def test_a_long_message_is_truncated() -> None:
    endless = ServerStatus(
        phase="Failed", message="x", last_lines=["y" * 5000], observed_generation=1
    )
    message = condition_value(
        status_of(an_instance(0), a_server(status=endless)), "Available"
    ).message
    assert len(message) == 1024


def gated(*conditions: Condition) -> Instance:
    instance = an_instance(0, ready=False)
    control = InstanceControl(scheduling_gates=[SchedulingGate(name="Quota")])
    return msgspec.structs.replace(
        instance,
        spec=msgspec.structs.replace(instance.spec, controller=control),
        status=msgspec.structs.replace(instance.status, conditions=list(conditions)),
    )


def test_a_denied_quota_is_reported_in_every_condition_until_it_is_granted() -> None:
    denied = make_condition(
        "QuotaGranted", ConditionValue("False", "QuotaExceeded", "11 of 10"), generation=1, now=NOW
    )
    status = status_of(gated(denied), None)
    assert condition_value(status, "Available") == ("False", "PendingQuota", "11 of 10")
    granted = make_condition(
        "QuotaGranted", ConditionValue("True", "QuotaAvailable", ""), generation=1, now=NOW
    )
    free = msgspec.structs.replace(
        an_instance(0),
        status=msgspec.structs.replace(status, conditions=[*status.conditions[1:], granted]),
    )
    assert condition_value(status_of(free, None), "Available").reason == "Pending"
    assert condition_value(status_of(free, None), "Programmed").reason == "Pending"


def test_a_new_instance_causes_no_write_before_its_machine_is_observed() -> None:
    fresh = Instance(spec=an_instance(0).spec, metadata=an_instance(0).metadata)
    plan = plan_provisioning(CELL, fresh, None, NOW)
    assert [type(action) for action in plan.actions] == [Create]
    assert plan_provisioning(CELL, fresh, a_server(status=ServerStatus()), NOW).is_settled


def test_every_instance_is_resynced() -> None:
    """A resync repairs a missed event."""
    assert plan_provisioning(CELL, an_instance(0), None, NOW).requeue_after_s == RESYNC_S


def test_a_foreign_server_of_the_name_is_waited_for_and_reported() -> None:
    earlier = a_server(owner="default/web-dfw-0/old", owned=False)
    wait, report = plan_provisioning(CELL, an_instance(0), earlier, NOW).actions
    assert isinstance(wait, Wait)
    assert isinstance(report, PatchStatus)
    reported = {c["type"]: (c["status"], c["reason"]) for c in report.status["conditions"]}
    assert reported["Programmed"] == ("Unknown", "ProgrammingInProgress")
    assert reported["Available"] == ("False", "Starting")


def test_a_server_with_an_edited_tag_is_deleted_with_its_instance() -> None:
    """Regression: the server remained after its workload was deleted."""
    edited = a_server(owner="junk")
    delete, *_ = plan_provisioning(CELL, an_instance(0, terminating=True), edited, NOW).actions
    assert isinstance(delete, Delete)


@pytest.mark.parametrize("tag", ["", "junk", "default/web-dfw-1/another"])
def test_a_lost_or_edited_tag_is_restored(tag: str) -> None:
    server = a_server()
    tags = {labels.INSTANCE_TAG: tag} if tag else {}
    edited = msgspec.structs.replace(server, spec=msgspec.structs.replace(server.spec, tags=tags))
    planned = plan_provisioning(CELL, an_instance(0), edited, NOW).actions
    (patch,) = [action for action in planned if isinstance(action, Patch)]
    assert patch.patch["spec"] == {"tags": server.spec.tags}


def test_a_server_without_references_is_adopted_by_its_name() -> None:
    server = a_server(owned=False)
    bare = msgspec.structs.replace(server, spec=msgspec.structs.replace(server.spec, tags={}))
    planned = plan_provisioning(CELL, an_instance(0), bare, NOW).actions
    (patch,) = [action for action in planned if isinstance(action, Patch)]
    uid = an_instance(0).metadata.uid
    assert patch.patch["spec"] == {"tags": server.spec.tags}
    assert patch.patch["metadata"]["labels"] == {labels.INSTANCE_UID: uid}
    assert [owner["uid"] for owner in patch.patch["metadata"]["ownerReferences"]] == [uid]


@pytest.mark.parametrize("phase", ["Running", "Sleeping"])
def test_an_instance_is_not_available_while_its_server_is_being_removed(phase: Phase) -> None:
    status = status_of(an_instance(0), a_server(phase, terminating=True))
    assert condition_value(status, "Available")[:2] == ("False", "Stopping")


def test_a_new_instance_is_not_programmed_yet_while_its_machine_is_set_up() -> None:
    initial = InstanceStatus(conditions=unknown_conditions("Programmed", "Available", "Ready"))
    fresh = msgspec.structs.replace(an_instance(0), status=initial)
    status = status_of(fresh, a_server("Pending"))
    assert condition_value(status, "Programmed") == ("Unknown", "ProgrammingInProgress", "as seen")
    assert condition_value(status, "Available") == ("False", "Starting", "as seen")
    unseen = status_of(fresh, a_server("Unknown"))
    assert unseen.conditions == initial.conditions, "it was never observed"


@pytest.mark.parametrize("terminating", [False, True])
def test_a_terminating_instance_reports_that_it_stops(terminating: bool) -> None:
    going, server = an_instance(0, terminating=True), a_server(terminating=terminating)
    (report,) = [
        action
        for action in plan_provisioning(CELL, going, server, NOW).actions
        if isinstance(action, PatchStatus)
    ]
    reported = {c["type"]: (c["status"], c["reason"]) for c in report.status["conditions"]}
    assert reported["Available"] == reported["Ready"] == ("False", "Stopping")
    status = msgspec.structs.replace(
        going.status, conditions=msgspec.convert(report.status["conditions"], list[Condition])
    )
    reported_before = msgspec.structs.replace(going, status=status)
    again = plan_provisioning(CELL, reported_before, server, NOW).actions
    assert not [action for action in again if isinstance(action, PatchStatus)]


def test_an_instance_is_released_only_after_its_server_is_gone() -> None:
    going = an_instance(0, terminating=True)
    delete, wait, _ = plan_provisioning(CELL, going, a_server(), NOW).actions
    assert isinstance(delete, Delete)
    assert isinstance(wait, Wait)
    wait, _ = plan_provisioning(CELL, going, a_server(terminating=True), NOW).actions
    assert isinstance(wait, Wait)
    (release,) = plan_provisioning(CELL, going, None, NOW).actions
    assert isinstance(release, Patch)
    assert release.patch["metadata"]["finalizers"] == []


def test_a_machine_gets_the_claimed_size_and_keeps_it() -> None:
    """The claimed size may be smaller than the instance type."""
    small, other = InstanceSize(250, 512), InstanceSize(4000, 8192)
    (create, *_) = plan_provisioning(CELL, an_instance(0), None, NOW, small).actions
    assert isinstance(create, Create)
    assert isinstance(create.object, Server)
    amounts = create.object.spec.resources
    assert (amounts.cpu, amounts.memory) == ("250m", "512Mi")
    for size in (None, other):
        planned = plan_provisioning(CELL, an_instance(0), create.object, NOW, size).actions
        assert not [action for action in planned if isinstance(action, Patch | Delete)]


def test_a_server_without_a_size_gets_one() -> None:
    (create, *_) = plan_provisioning(CELL, an_instance(0), None, NOW).actions
    assert isinstance(create, Create)
    assert isinstance(create.object, Server)
    planned = plan_provisioning(
        CELL, an_instance(0), create.object, NOW, InstanceSize(1000, 2048)
    ).actions
    (patch,) = [action for action in planned if isinstance(action, Patch)]
    assert patch.patch["spec"] == {"resources": {"cpu": "1000m", "memory": "2048Mi"}}


def test_the_status_has_the_size_once_a_machine_was_set_up() -> None:
    server = a_server()
    sized = msgspec.structs.replace(
        server.spec, resources=ResourceAmounts(cpu="250m", memory="512Mi")
    )
    running = msgspec.structs.replace(server, spec=sized)
    assert status_of(an_instance(0), running).resources == sized.resources
    pending = msgspec.structs.replace(running, status=ServerStatus())
    assert status_of(an_instance(0), pending).resources == ResourceAmounts()


def test_the_status_has_the_addresses_of_the_machine_and_the_server_stays() -> None:
    given = [interface_of(an_instance(0), an_attachment(), ["10.128.16.9"])]
    instance = an_instance(0, ready=False)
    instance = msgspec.structs.replace(
        instance, status=msgspec.structs.replace(instance.status, network_interfaces=given)
    )
    (made, *_) = plan_provisioning(CELL, instance, None, NOW).actions
    assert isinstance(made, Create)
    assert isinstance(made.object, Server)
    seen = ServerStatus(phase="Running", observed_generation=1, addresses=["10.244.1.7"])
    server = msgspec.structs.replace(made.object, status=seen)
    status = status_of(instance, server)
    assert status.network_interfaces[0].assignments.network_ip == "10.244.1.7"
    again = plan_provisioning(CELL, msgspec.structs.replace(instance, status=status), server, NOW)
    assert [a for a in again.actions if not isinstance(a, PatchStatus)] == []


def with_fingerprint(server: Server, fingerprint: str) -> Server:
    status = msgspec.structs.replace(server.status, spec_fingerprint=fingerprint)
    return msgspec.structs.replace(server, status=status)


def with_image(server: Server, image: str) -> Server:
    container = msgspec.structs.replace(server.spec.containers[0], image=image)
    spec = msgspec.structs.replace(server.spec, containers=[container])
    return msgspec.structs.replace(server, spec=spec)


def test_a_machine_of_another_spec_is_replaced() -> None:
    """Its Server was edited while the machine was lost, and restored after the machine started."""
    server = a_server()
    edited = machine_fingerprint(with_image(server, "evil:1").spec)
    plan = plan_provisioning(CELL, an_instance(0), with_fingerprint(server, edited), NOW)
    (delete,) = [action for action in plan.actions if isinstance(action, Delete)]
    assert delete.uid == server.metadata.uid
    assert delete.version == server.metadata.resource_version


def test_a_machine_of_its_own_spec_stays() -> None:
    server = a_server()
    for fingerprint in (machine_fingerprint(server.spec), "", "0-of-a-later-release"):
        plan = plan_provisioning(CELL, an_instance(0), with_fingerprint(server, fingerprint), NOW)
        assert not [action for action in plan.actions if isinstance(action, Delete)]


def test_an_edited_server_is_restored_and_its_machine_stays() -> None:
    server = a_server()
    edited = with_fingerprint(with_image(server, "evil:1"), machine_fingerprint(server.spec))
    plan = plan_provisioning(CELL, an_instance(0), edited, NOW)
    assert [type(action) for action in plan.actions if not isinstance(action, PatchStatus)] == [
        Patch
    ]


def test_an_edited_server_is_restored_before_its_machine_is_replaced() -> None:
    edited = with_image(a_server(), "evil:1")
    running_it = with_fingerprint(edited, machine_fingerprint(edited.spec))
    plan = plan_provisioning(CELL, an_instance(0), running_it, NOW)
    assert [type(action) for action in plan.actions if not isinstance(action, PatchStatus)] == [
        Patch
    ]


def test_the_fingerprint_covers_the_containers_and_nothing_else() -> None:
    spec = a_server().spec
    same = msgspec.structs.replace(spec, template_hash="other", tags={}, instance_type="large")
    assert machine_fingerprint(same) == machine_fingerprint(spec)
    assert machine_fingerprint(with_image(a_server(), "web:9").spec) != machine_fingerprint(spec)
    volume = Volume(name="data", config_map=ConfigMapVolume(name="settings"))
    with_volume = msgspec.structs.replace(spec, volumes=[volume])
    assert machine_fingerprint(with_volume) != machine_fingerprint(spec)


FIRST, SECOND = an_instance(0), an_instance(1)
MALFORMED = [None, "", "junk", "a/b", "a//c", "/a/b", "a/b/c/d"]


def a_server_ownership(
    tag: str | None = None,
    *,
    owner: OwnerReference | None = None,
    label: str = "",
    name: str = "web-dfw-0",
) -> Server:
    return Server(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            owner_references=[] if owner is None else [owner],
            labels={labels.INSTANCE_UID: label} if label else {},
        ),
        spec=ServerSpec(
            instance_type="d1-standard-2",
            template_hash="abc",
            containers=a_template().spec.runtime.sandbox.containers,
            tags={} if tag is None else {labels.INSTANCE_TAG: tag},
        ),
    )


def owned_by(instance: Instance) -> OwnerReference:
    return owner_reference(instance, INSTANCE)


def replaced(instance: Instance) -> Instance:
    """A later Instance of the same name."""
    metadata = msgspec.structs.replace(instance.metadata, uid="another")
    return msgspec.structs.replace(instance, metadata=metadata)


def among(*instances: Instance) -> Callable[[Ref], Instance | None]:
    return {ref_of(instance): instance for instance in instances}.get


OWN = a_server_ownership(instance_tag(FIRST), owner=owned_by(FIRST), label=FIRST.metadata.uid)

CHAIN = [
    (a_server_ownership(instance_tag(FIRST)), Match.HIT),
    (a_server_ownership(None, owner=owned_by(FIRST)), Match.HIT_BY_OWNER),
    (a_server_ownership("junk", owner=owned_by(FIRST)), Match.HIT_BY_OWNER),
    (a_server_ownership(None, label=FIRST.metadata.uid), Match.HIT_BY_LABEL),
    (a_server_ownership("junk", label=FIRST.metadata.uid), Match.HIT_BY_LABEL),
    (a_server_ownership(None), Match.HIT_BY_NAME),
]


@pytest.mark.parametrize(
    ("server", "match"), CHAIN, ids=[f"{n}-{m}" for n, (_, m) in enumerate(CHAIN)]
)
def test_each_reference_finds_the_instance(server: Server, match: Match) -> None:
    assert find_owner(server, among(FIRST, SECOND), [server]).match is match
    assert is_server_of(server, FIRST)
    assert refs_to_reconcile(server, lambda _ref: True) == [ref_of(FIRST)]


def test_the_tag_comes_first() -> None:
    assert [reference.match for reference in instance_references(OWN)] == [
        Match.HIT,
        Match.HIT_BY_OWNER,
        Match.HIT_BY_LABEL,
    ]
    assert find_owner(OWN, among(FIRST), [OWN]).match is Match.HIT


def test_the_owner_decides_if_the_tag_names_a_deleted_instance() -> None:
    server = a_server_ownership("default/web-dfw-0/gone", owner=owned_by(FIRST))
    assert find_owner(server, among(FIRST), [server]).match is Match.HIT_BY_OWNER
    assert is_server_of(server, FIRST)


def test_an_owner_of_another_kind_is_ignored() -> None:
    server = a_server_ownership(None, owner=owner_reference(a_deployment(), DEPLOYMENT))
    assert find_owner(server, among(FIRST), [server]).match is Match.HIT_BY_NAME


@pytest.mark.parametrize("tag", MALFORMED)
def test_a_server_without_references_and_instance_is_reported(tag: str | None) -> None:
    owner = find_owner(a_server_ownership(tag), among(), [])
    assert owner.match is Match.MISSING_TAG
    assert "default/web-dfw-0" in owner.message


def test_an_instance_that_does_not_exist_is_reported() -> None:
    owner = find_owner(OWN, among(), [OWN])
    assert owner.match is Match.UNKNOWN_OWNER
    assert FIRST.metadata.uid in owner.message


EARLIER = [
    a_server_ownership(instance_tag(FIRST)),
    a_server_ownership(None, owner=owned_by(FIRST)),
    a_server_ownership(None, label=FIRST.metadata.uid),
    OWN,
]


@pytest.mark.parametrize("server", EARLIER, ids=["tag", "owner", "label", "all"])
def test_the_server_of_an_earlier_instance_is_not_adopted(server: Server) -> None:
    later = replaced(FIRST)
    assert find_owner(server, among(later), [server]).match is Match.UNKNOWN_OWNER
    assert not is_server_of(server, later)


def test_a_tag_of_another_instance_is_ambiguous_and_keeps_the_owner() -> None:
    server = a_server_ownership(
        instance_tag(SECOND), owner=owned_by(FIRST), label=FIRST.metadata.uid
    )
    owner = find_owner(server, among(FIRST, SECOND), [server])
    assert owner.match is Match.AMBIGUOUS
    assert str(ref_of(FIRST)) in owner.message
    assert str(ref_of(SECOND)) in owner.message
    assert is_server_of(server, FIRST)
    assert refs_to_reconcile(server, lambda _ref: True) == [ref_of(SECOND), ref_of(FIRST)]


def test_the_instance_of_the_same_name_keeps_the_server() -> None:
    server = a_server_ownership(instance_tag(SECOND))
    assert is_server_of(server, FIRST)
    assert refs_to_reconcile(server, lambda _ref: True) == [ref_of(SECOND), ref_of(FIRST)]


def test_a_server_without_an_instance_of_its_name_wakes_only_the_referenced_one() -> None:
    twin = a_server_ownership(instance_tag(FIRST), name="twin")
    assert refs_to_reconcile(twin, lambda ref: ref == ref_of(FIRST)) == [ref_of(FIRST)]


def test_two_servers_of_one_instance_are_reported_by_name() -> None:
    second = a_server_ownership(instance_tag(FIRST), label=FIRST.metadata.uid, name="copy")
    owner = find_owner(OWN, among(FIRST), [OWN, second])
    assert owner.match is Match.DUPLICATE
    assert "default/copy" in owner.message


def with_ports(*ports: ContainerPort, terminating: bool = False) -> WorkloadDeployment:
    deployment = a_deployment(terminating=terminating)
    sandbox = msgspec.structs.replace(
        deployment.spec.template.spec.runtime.sandbox,
        containers=[Container(name="app", image="web:1", ports=list(ports))],
    )
    runtime = msgspec.structs.replace(deployment.spec.template.spec.runtime, sandbox=sandbox)
    template = msgspec.structs.replace(
        deployment.spec.template,
        spec=msgspec.structs.replace(deployment.spec.template.spec, runtime=runtime),
    )
    spec = msgspec.structs.replace(deployment.spec, template=template)
    return msgspec.structs.replace(deployment, spec=spec)


def with_ready(instance: Instance, status: ConditionStatus, reason: str) -> Instance:
    ready = make_condition(READY, ConditionValue(status, reason, ""), generation=1, now=NOW)
    conditions = with_condition(instance.status.conditions, ready)
    return msgspec.structs.replace(
        instance, status=msgspec.structs.replace(instance.status, conditions=conditions)
    )


def unobserved(instance: Instance, reason: str = "NotObserved") -> Instance:
    return with_ready(instance, UNKNOWN, reason)


def with_status(status: ServerStatus) -> Server:
    return msgspec.structs.replace(OWN, status=status)


def test_an_unobserved_instance_keeps_its_connections() -> None:
    """An unreachable engine stops no instance. An instance that was never set up does not serve."""
    assert accepts_connections(an_instance(0), None)
    assert accepts_connections(unobserved(an_instance(0)), None)
    assert not accepts_connections(an_instance(0, ready=False), None)
    assert not accepts_connections(unobserved(an_instance(0, ready=False)), None)
    assert not accepts_connections(unobserved(an_instance(0), reason="Pending"), None)
    assert not accepts_connections(an_instance(0, terminating=True), None)


def test_a_crashed_instance_accepts_connections_as_soon_as_its_machine_does() -> None:
    """It counts as ready later, when its program has run for a while."""
    crashed = with_ready(an_instance(0), FALSE, Reason.INSTANCE_CRASHING)
    assert not accepts_connections(crashed, None)
    assert not accepts_connections(crashed, with_status(ServerStatus(phase="Failed")))
    recovering = with_status(ServerStatus(phase="Failed", recovering=True))
    assert accepts_connections(crashed, recovering)
    running = with_status(ServerStatus(phase="Running"))
    assert accepts_connections(crashed, running), "Ready of the instance is written next"
    unready = with_status(ServerStatus(phase="Running", reason="NotReady"))
    assert not accepts_connections(crashed, unready)
    gated = with_ready(an_instance(0), FALSE, Reason.PENDING_QUOTA)
    assert not accepts_connections(gated, recovering)
    stopping = msgspec.structs.replace(crashed, metadata=an_instance(0, terminating=True).metadata)
    assert not accepts_connections(stopping, recovering)


WEB = ContainerPort(name="http", port=8080)
DNS = ContainerPort(name="dns", port=53, protocol="UDP")


def test_named_tcp_ports_are_published_until_the_deployment_is_deleted() -> None:
    assert published_ports(with_ports(WEB, DNS)) == [WEB]
    assert published_ports(with_ports(WEB, terminating=True)) == []


def test_urls_are_written_once_and_ports_are_kept() -> None:
    deployment = with_ports(WEB)
    published = {"http": ("127.0.0.1", 40001), "https-api": ("127.0.0.1", 40002)}
    (write,) = plan_endpoints(CELL, deployment, published).actions
    assert isinstance(write, PatchStatus)
    urls = [endpoint["url"] for endpoint in write.status["endpoints"]]
    assert urls == ["http://127.0.0.1:40001", "https://127.0.0.1:40002"]
    status = msgspec.convert(write.status, type=type(deployment.status))
    after = msgspec.structs.replace(deployment, status=status)
    assert last_ports(after) == {"http": 40001, "https-api": 40002}
    assert plan_endpoints(CELL, after, published).actions == ()


def test_endpoints_that_are_no_longer_published_are_removed() -> None:
    published = {"http": ("127.0.0.1", 40001)}
    (write,) = plan_endpoints(CELL, with_ports(WEB), published).actions
    assert isinstance(write, PatchStatus)
    status = msgspec.convert(write.status, type=type(with_ports().status))
    after = msgspec.structs.replace(with_ports(), status=status)
    (write,) = plan_endpoints(CELL, after, {}).actions
    assert isinstance(write, PatchStatus)
    assert write.status == {"endpoints": None}
