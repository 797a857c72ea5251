"""Projects request access to compute; providers approve, deny and revoke it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from datum_compute.api.conditions import find_condition
from datum_compute.api.errors import ApiError, Invalid
from datum_compute.api.kinds import (
    CONSUMER,
    ENTITLEMENT,
    GRANT,
    INSTANCE,
    LOCATION,
    LOCATION_BINDING,
    NAMESPACE,
    NETWORK,
    SERVER,
    SERVICE,
    SERVICE_CONFIGURATION,
    WORKLOAD,
)
from datum_compute.api.meta.fields import LocalReference
from datum_compute.api.meta.objects import KindInfo, ObjectMeta, Ref
from datum_compute.api.planes import PLATFORM, cell_plane, project_plane
from datum_compute.api.services import (
    Service,
    ServiceConsumer,
    ServiceDependency,
    ServiceEntitlement,
    ServiceOwner,
    ServiceSpec,
    consumer_name,
)
from datum_compute.planning.network.addresses import addresses_of
from testkit.sim.actors.users import DesiredWorkload, manifest
from tests.app.running_platform import (
    FIRST,
    Running,
    create_project,
    delete_project,
    has_phase,
    is_gone,
    on_a_platform,
    request_access,
    until,
)

CELL = cell_plane("dfw")
PLANE = project_plane("added")
COMPUTE = Ref("", "compute")
SC = Ref("", consumer_name("compute.datumapis.com", "added"))
WEB = manifest(("added", "web"), DesiredWorkload("web:1", 2, ("DFW",)))

Story = Callable[[Running], Coroutine[Any, Any, None]]


def run_in_new_project(story: Story, mode: str = "SelfService") -> None:
    async def main(running: Running) -> None:
        mode_patch = {"spec": {"enablementPolicy": {"mode": mode}}}
        await running.client(PLATFORM).patch(SERVICE, COMPUTE, mode_patch)
        await create_project(running, "added")
        await story(running)

    on_a_platform(main, CELL)


async def get_entitlement(running: Running) -> ServiceEntitlement:
    return await running.client(PLANE).get(ENTITLEMENT, COMPUTE)


async def has_provisioned_resources(running: Running, count: int) -> bool:
    return len((await get_entitlement(running)).status.provisioned_resources) == count


async def ready_reason(running: Running) -> str:
    ready = find_condition((await get_entitlement(running)).status.conditions, "Ready")
    return ready.reason if ready is not None else ""


async def decide(running: Running, decision: str | None, message: str = "") -> None:
    approval = None if decision is None else {"decision": decision, "message": message}
    await running.client(PLATFORM).patch(CONSUMER, SC, {"spec": {"approval": approval}})


async def wait_for_phase(running: Running, phase: str) -> None:
    await until(lambda: has_phase(running, PLANE, phase))


async def run_web(running: Running) -> None:
    await running.client(PLANE).create_plain(WORKLOAD, WEB)
    await until(lambda: has_machines(running, 2))


async def has_machines(running: Running, count: int) -> bool:
    """Return whether this many machines run. A suspended machine is kept and does not run."""
    machines = running.machines[CELL].values()
    return sum(machine.suspended_from_s is None for machine in machines) == count


async def identities(running: Running) -> dict[str, tuple[str, ...]]:
    """Return uids and addresses of the workload and its instances, and the machines."""
    client, cell = running.client(PLANE), running.client(CELL)
    workload = await client.get(WORKLOAD, Ref("default", "web"))
    instances = (await cell.list(INSTANCE)).items
    servers = {server.metadata.name: server for server in (await cell.list(SERVER)).items}
    found = {"web": (workload.metadata.uid,), "machines": tuple(sorted(running.machines[CELL]))}
    for instance in instances:
        addresses = addresses_of(instance.status.network_interfaces)
        server = servers[instance.metadata.name].metadata.uid
        found[instance.metadata.name] = (instance.metadata.uid, server, *addresses)
    return found


async def web_condition(running: Running, type_: str = "Available") -> str:
    workload = await running.client(PLANE).get(WORKLOAD, Ref("default", "web"))
    found = find_condition(workload.status.conditions, type_)
    return found.reason if found is not None else ""


async def has_reason(running: Running, reason: str) -> bool:
    return await web_condition(running) == reason


async def request_again(running: Running, phase: str) -> None:
    await running.client(PLANE).delete(ENTITLEMENT, COMPUTE)
    await until(lambda: is_gone(running.client(PLANE), ENTITLEMENT, COMPUTE), within_s=2.0)
    await request_access(running, PLANE, phase)


async def create_rejected_workload(running: Running) -> str:
    with pytest.raises(Invalid) as refused:
        await running.client(PLANE).create_plain(WORKLOAD, WEB)
    assert "sc-" not in str(refused.value)
    assert "rviceE" not in str(refused.value), "messages for users contain no kinds of the platform"
    return str(refused.value)


# --- requests


def test_a_new_project_has_a_network_and_no_access() -> None:
    async def story(running: Running) -> None:
        assert await running.client(PLANE).get(NETWORK, Ref("default", "default"))
        assert (await running.client(PLANE).list(GRANT)).items == []
        assert (await running.client(PLANE).list(LOCATION_BINDING)).items == []
        message = await create_rejected_workload(running)
        assert "was not requested" in message
        assert "datumctl compute access request" in message

    run_in_new_project(story)


def test_self_service_is_active_at_once_with_quota_and_locations() -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE)
        found = await get_entitlement(running)
        assert found.status.entitled_at
        assert (found.status.origin, found.status.service_name) == (
            "Direct",
            "compute.datumapis.com",
        )
        assert await ready_reason(running) == "EntitlementActive"
        await until(lambda: has_provisioned_resources(running, 5))
        grants = (await running.client(PLANE).list(GRANT)).items
        assert len(grants) == 4
        assert all(grant.metadata.name.startswith("rg-") for grant in grants)
        bindings = (await running.client(PLANE).list(LOCATION_BINDING)).items
        assert [binding.metadata.name for binding in bindings] == ["dfw"]
        await run_web(running)

    run_in_new_project(story)


def test_a_service_that_is_not_published_cannot_be_requested() -> None:
    async def story(running: Running) -> None:
        draft = Service(
            metadata=ObjectMeta(name="storage"),
            spec=ServiceSpec(
                service_name="storage.example.com",
                owner=ServiceOwner(producer_project_ref=LocalReference(name="first")),
            ),
        )
        await running.client(PLATFORM).create(SERVICE, draft)
        for name, message in (
            ("storage", "does not offer this service"),
            ("compote", "did you mean compute"),
        ):
            with pytest.raises(Invalid, match=message):
                await running.client(PLANE).create_plain(ENTITLEMENT, _request(name))
        with pytest.raises(Invalid, match=r"metadata\.name"):
            await running.client(PLANE).create_plain(ENTITLEMENT, _request("compute", "mine"))

    run_in_new_project(story)


def _request(service: str, name: str = "") -> dict[str, Any]:
    return {
        "apiVersion": ENTITLEMENT.api_version,
        "kind": ENTITLEMENT.kind,
        "metadata": {"name": name or service},
        "spec": {"serviceRef": {"name": service}},
    }


# --- decisions


def test_a_gated_service_waits_for_approval_and_shows_its_message() -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE, "PendingApproval")
        assert await ready_reason(running) == "EntitlementPendingApproval"
        assert "waits for approval" in await create_rejected_workload(running)
        assert (await get_entitlement(running)).status.entitled_at is None
        await decide(running, "Approved", "welcome")
        await wait_for_phase(running, "Active")
        assert await ready_reason(running) == "ConsumerApproved"
        ready = find_condition((await get_entitlement(running)).status.conditions, "Ready")
        assert ready is not None
        assert ready.message == "welcome"
        await run_web(running)

    run_in_new_project(story, "GatedByProvider")


def test_access_can_be_requested_again_after_a_denial() -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE, "PendingApproval")
        await decide(running, "Denied", "not now")
        await wait_for_phase(running, "Rejected")
        found = await get_entitlement(running)
        assert (await ready_reason(running), found.status.entitled_at) == ("ConsumerDenied", None)
        message = await create_rejected_workload(running)
        assert "was denied (not now)" in message
        assert "access renew" in message
        await request_again(running, "PendingApproval")
        await decide(running, "Approved")
        await wait_for_phase(running, "Active")

    run_in_new_project(story, "GatedByProvider")


def set_decision(decision: str | None) -> Story:
    async def act(running: Running) -> None:
        await decide(running, decision)

    return act


async def suspend(running: Running) -> None:
    await running.client(PLATFORM).patch(CONSUMER, SC, {"spec": {"suspended": True}})


async def remove_consumer(running: Running) -> None:
    await running.client(PLATFORM).delete(CONSUMER, SC)


@pytest.mark.parametrize(
    "revoke", [set_decision("Denied"), set_decision(None), suspend, remove_consumer]
)
def test_revoked_access_suspends_that_project_only_and_deletes_nothing(
    revoke: Story,
) -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE, "PendingApproval")
        await decide(running, "Approved")
        await wait_for_phase(running, "Active")
        entitled_at = (await get_entitlement(running)).status.entitled_at
        await run_web(running)
        other = manifest(("first", "web"), DesiredWorkload("web:1", 1, ("DFW",)))
        await running.client(FIRST).create_plain(WORKLOAD, other)
        await until(lambda: has_machines(running, 3))
        before = await identities(running)
        await revoke(running)
        await wait_for_phase(running, "Rejected")
        assert "was revoked" in await create_rejected_workload(running)
        await until(lambda: has_machines(running, 1))
        await until(lambda: has_reason(running, "ProjectSuspended"))
        assert (await get_entitlement(running)).status.entitled_at == entitled_at
        assert await running.client(PLANE).get(NETWORK, Ref("default", "default"))
        await asyncio.sleep(400)
        assert await has_machines(running, 1)
        assert await identities(running) == before, "a suspension changes an identity"
        assert await web_condition(running, "Progressing") == "ProjectSuspended"

    run_in_new_project(story, "GatedByProvider")


async def resume(running: Running) -> None:
    await running.client(PLATFORM).patch(CONSUMER, SC, {"spec": {"suspended": False}})


@pytest.mark.parametrize(
    ("revoke", "restore"),
    [(set_decision("Denied"), set_decision("Approved")), (suspend, resume)],
    ids=["denied", "suspended"],
)
def test_the_same_instances_run_again_after_access_is_restored(
    revoke: Story, restore: Story
) -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE)
        await run_web(running)
        before = await identities(running)
        await revoke(running)
        await until(lambda: has_machines(running, 0))
        await restore(running)
        await wait_for_phase(running, "Active")
        await until(lambda: has_reason(running, "AvailablePlacementFound"))
        await until(lambda: has_machines(running, 2))
        assert await identities(running) == before

    run_in_new_project(story)


def test_an_edit_of_a_suspended_workload_takes_effect_when_it_resumes() -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE)
        await run_web(running)
        await suspend(running)
        await until(lambda: has_reason(running, "ProjectSuspended"))
        scale = [
            {
                "op": "replace",
                "path": "/spec/placements/0/scaleSettings/minReplicas",
                "value": 3,
            }
        ]
        await running.client(PLANE).patch(WORKLOAD, Ref("default", "web"), scale)
        await asyncio.sleep(40)
        assert len(running.machines[CELL]) == 2, "a suspended project starts a machine"
        await resume(running)
        await until(lambda: has_machines(running, 3))

    run_in_new_project(story)


def test_a_revocation_survives_a_restart() -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE)
        await run_web(running)
        before = await identities(running)
        await decide(running, "Denied")
        await running.stop()
        await running.start()
        await until(lambda: has_machines(running, 0))
        await wait_for_phase(running, "Rejected")
        await running.stop()
        await running.start()
        await asyncio.sleep(40)
        assert await has_machines(running, 0), "a restart resumes a suspended project"
        await decide(running, None)
        await wait_for_phase(running, "Active")
        await until(lambda: has_machines(running, 2))
        assert await identities(running) == before

    run_in_new_project(story)


async def delete_workload(running: Running) -> None:
    await running.client(PLANE).delete(WORKLOAD, Ref("default", "web"))


async def delete_own_project(running: Running) -> None:
    await delete_project(running, PLANE)


@pytest.mark.parametrize("delete", [delete_workload, delete_own_project])
def test_workloads_of_a_suspended_project_are_deleted_only_with_their_owners(
    delete: Story,
) -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE)
        await run_web(running)
        for act in (suspend, resume, set_decision("Denied"), set_decision(None), remove_consumer):
            await act(running)
            await asyncio.sleep(40)
            assert len(running.machines[CELL]) == 2, "a machine was removed"
            assert await running.client(PLANE).get(WORKLOAD, Ref("default", "web"))
        await delete(running)

        async def has_no_machine() -> bool:
            return not running.machines[CELL]

        await until(has_no_machine)

    run_in_new_project(story)


def test_a_workload_of_a_suspended_project_is_deleted_with_its_namespace() -> None:
    async def story(running: Running) -> None:
        client = running.client(PLANE)
        await request_access(running, PLANE)
        await client.create_plain(NAMESPACE, {**_head(NAMESPACE), "metadata": {"name": "shop"}})
        network = {
            **_head(NETWORK),
            "metadata": {"name": "default", "namespace": "shop"},
            "spec": {"ipam": {"mode": "Auto"}},
        }
        await client.create_plain(NETWORK, network)
        metadata = {**WEB["metadata"], "namespace": "shop"}
        await client.create_plain(WORKLOAD, {**WEB, "metadata": metadata})
        await until(lambda: has_machines(running, 2))
        await suspend(running)
        await until(lambda: has_machines(running, 0))
        await client.delete(NAMESPACE, Ref("", "shop"))

        async def has_no_machine() -> bool:
            return not running.machines[CELL]

        await until(has_no_machine)
        await until(lambda: is_gone(client, NAMESPACE, Ref("", "shop")))

    run_in_new_project(story)


def _head(kind: KindInfo[Any]) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind}


def test_existing_access_stays_when_the_service_becomes_gated() -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE)
        await run_web(running)
        gated = {"spec": {"enablementPolicy": {"mode": "GatedByProvider"}}}
        await running.client(PLATFORM).patch(SERVICE, COMPUTE, gated)
        await asyncio.sleep(40)
        assert (await get_entitlement(running)).status.phase == "Active"
        assert len(running.machines[CELL]) == 2

    run_in_new_project(story)


@pytest.mark.parametrize("reject", [set_decision("Denied"), suspend])
def test_a_denial_or_suspension_survives_a_new_request(reject: Story) -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE)
        await reject(running)
        await wait_for_phase(running, "Rejected")
        await request_again(running, "Rejected")
        assert (await get_entitlement(running)).status.phase == "Rejected"
        await asyncio.sleep(40)
        assert (await get_entitlement(running)).status.phase == "Rejected"

    run_in_new_project(story)


def test_a_service_that_is_retired_is_unavailable() -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE)
        await run_web(running)
        platform = running.client(PLATFORM)
        with pytest.raises(Invalid, match="one step at a time"):
            await platform.patch(SERVICE, COMPUTE, {"spec": {"phase": "Retired"}})
        await platform.patch(SERVICE, COMPUTE, {"spec": {"phase": "Deprecated"}})
        await asyncio.sleep(30)
        assert (await get_entitlement(running)).status.phase == "Active"
        await platform.patch(SERVICE, COMPUTE, {"spec": {"phase": "Retired"}})
        await wait_for_phase(running, "Rejected")
        assert await ready_reason(running) == "ServiceNotPublished"
        assert "not available" in await create_rejected_workload(running)
        await until(lambda: has_machines(running, 0))

    run_in_new_project(story)


def test_deleting_a_service_keeps_running_workloads() -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE)
        await run_web(running)
        await running.client(PLATFORM).delete(SERVICE, COMPUTE)
        await asyncio.sleep(40)
        assert len(running.machines[CELL]) == 2

    run_in_new_project(story)


# --- provisioned resources


def test_deleting_an_entitlement_deletes_only_its_resources() -> None:
    async def story(running: Running) -> None:
        client = running.client(PLANE)
        await request_access(running, PLANE)
        mine = (await client.list(GRANT)).items[0]
        spec = {"consumerRef": {"kind": "Project", "name": "added"}}
        allowed = [{"resourceType": "compute.datumapis.com/instances", "buckets": [{"amount": 1}]}]
        metadata = {"name": "mine", "namespace": mine.metadata.namespace}
        head = {"apiVersion": GRANT.api_version, "kind": GRANT.kind, "metadata": metadata}
        await client.create_plain(GRANT, {**head, "spec": {**spec, "allowances": allowed}})
        await run_web(running)
        await client.delete(ENTITLEMENT, COMPUTE)
        await until(lambda: is_gone(client, ENTITLEMENT, COMPUTE))
        assert await has_machines(running, 0), "the instances are stopped first"
        before = await identities(running)
        assert [grant.metadata.name for grant in (await client.list(GRANT)).items] == ["mine"]
        assert (await client.list(LOCATION_BINDING)).items == []
        assert await is_gone(running.client(PLATFORM), CONSUMER, SC)
        assert (await running.client(FIRST).list(GRANT)).items
        await request_access(running, PLANE)
        await until(lambda: has_machines(running, 2))
        assert await identities(running) == before

    run_in_new_project(story)


def test_deleted_resources_are_recreated_and_raised_limits_are_kept() -> None:
    async def story(running: Running) -> None:
        client, platform = running.client(PLANE), running.client(PLATFORM)
        await request_access(running, PLANE)
        first, raised, *_ = (await client.list(GRANT)).items
        await client.delete(GRANT, Ref(first.metadata.namespace, first.metadata.name))
        await client.delete(LOCATION_BINDING, Ref("", "dfw"))
        ref = Ref(raised.metadata.namespace, raised.metadata.name)
        path = "/spec/allowances/0/buckets/0/amount"
        await client.patch(GRANT, ref, [{"op": "replace", "path": path, "value": 77}])
        limits = (await platform.get(SERVICE_CONFIGURATION, COMPUTE)).spec.quota.limits
        doubled = [
            {"op": "replace", "path": f"/spec/quota/limits/{at}/defaultLimit", "value": 5}
            for at, _ in enumerate(limits)
        ]
        await platform.patch(SERVICE_CONFIGURATION, COMPUTE, doubled)
        await asyncio.sleep(5)
        amounts = {
            grant.metadata.name: grant.spec.allowances[0].buckets[0].amount
            for grant in (await client.list(GRANT)).items
        }
        assert amounts.pop(raised.metadata.name) == 77
        assert list(amounts.values()) == [5, 5, 5]
        assert await client.get(LOCATION_BINDING, Ref("", "dfw"))

    run_in_new_project(story)


def test_a_lowered_limit_survives_a_new_request() -> None:
    async def story(running: Running) -> None:
        client = running.client(PLANE)
        await request_access(running, PLANE)
        lowered, *others = (await client.list(GRANT)).items
        ref = Ref(lowered.metadata.namespace, lowered.metadata.name)
        path = "/spec/allowances/0/buckets/0/amount"
        await client.patch(GRANT, ref, [{"op": "replace", "path": path, "value": 1}])
        for _ in range(2):
            await client.delete(ENTITLEMENT, COMPUTE)
            await until(lambda: is_gone(client, ENTITLEMENT, COMPUTE))
            await asyncio.sleep(30)  # longer than an interval of the garbage collector
            assert [grant.metadata.name for grant in (await client.list(GRANT)).items] == [ref.name]
            await request_access(running, PLANE)
            grants = {g.metadata.name: g for g in (await client.list(GRANT)).items}
            assert len(grants) == len(others) + 1
            assert grants[ref.name].spec.allowances[0].buckets[0].amount == 1

    run_in_new_project(story)


def test_location_bindings_follow_the_locations_of_the_platform() -> None:
    async def story(running: Running) -> None:
        client, platform = running.client(PLANE), running.client(PLATFORM)
        await request_access(running, PLANE)
        for name, class_ in (("lhr", "datum-managed"), ("mine", "self-managed")):
            topology = {"topology.datum.net/city-code": name.upper()}
            body = {
                "apiVersion": LOCATION.api_version,
                "kind": LOCATION.kind,
                "metadata": {"name": name},
                "spec": {"locationClassName": class_, "topology": topology},
            }
            await platform.create_plain(LOCATION, body)
        await asyncio.sleep(2)
        found = {b.metadata.name: b for b in (await client.list(LOCATION_BINDING)).items}
        assert sorted(found) == ["dfw", "lhr"]
        available = find_condition(found["lhr"].status.conditions, "Available")
        assert available is not None
        assert (available.status, available.reason) == ("False", "LocationNotReady")
        assert available.message == "The location is not ready: No cell serves LHR"
        await platform.delete(LOCATION, Ref("", "lhr"))
        await until(lambda: is_gone(client, LOCATION_BINDING, Ref("", "lhr")))

    run_in_new_project(story)


def test_dependencies_of_a_service_are_enabled_and_disabled_with_it() -> None:
    async def story(running: Running) -> None:
        platform, client = running.client(PLATFORM), running.client(PLANE)
        owner = ServiceOwner(producer_project_ref=LocalReference(name="first"))
        needs = [ServiceDependency(service_ref=LocalReference(name="storage"))]
        for name, dependencies in (("storage", []), ("database", needs)):
            spec = ServiceSpec(
                service_name=f"{name}.example.com",
                phase="Published",
                owner=owner,
                dependencies=dependencies,
            )
            await platform.create(SERVICE, Service(metadata=ObjectMeta(name=name), spec=spec))
        await client.create_plain(ENTITLEMENT, _request("database"))
        await until(lambda: _is_active(running, "storage"))
        needed = await client.get(ENTITLEMENT, Ref("", "storage"))
        assert (needed.status.origin, needed.status.dependency_of) == ("Dependency", "database")
        await client.delete(ENTITLEMENT, Ref("", "database"))
        await until(lambda: is_gone(client, ENTITLEMENT, Ref("", "storage")))
        consumers = (await platform.list(CONSUMER)).items
        assert [_service_and_project(c) for c in consumers] == [("compute", "first")]

    run_in_new_project(story)


async def _is_active(running: Running, service: str) -> bool:
    ref = Ref("", service)
    if await is_gone(running.client(PLANE), ENTITLEMENT, ref):
        return False
    return (await running.client(PLANE).get(ENTITLEMENT, ref)).status.phase == "Active"


def _service_and_project(consumer: ServiceConsumer) -> tuple[str, str]:
    return consumer.spec.service_ref.name, consumer.spec.consumer_project_ref.name


def test_a_project_that_is_denied_can_still_be_deleted() -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE)
        await decide(running, "Denied")
        await wait_for_phase(running, "Rejected")
        await delete_project(running, PLANE)
        with pytest.raises(ApiError, match="no plane"):
            await running.client(PLANE).list(WORKLOAD)
        assert await is_gone(running.client(PLATFORM), CONSUMER, SC)

    run_in_new_project(story)
