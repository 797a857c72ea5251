"""Access of projects to compute: asked for, decided on, taken back and asked for again."""

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
    LOCATION,
    LOCATION_BINDING,
    NETWORK,
    SERVICE,
    SERVICE_CONFIGURATION,
    WORKLOAD,
)
from datum_compute.api.meta.fields import LocalReference
from datum_compute.api.meta.objects import ObjectMeta, Ref
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
from testkit.sim.actors.users import Wanted, manifest
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
WEB = manifest(("added", "web"), Wanted("web:1", 2, ("DFW",)))

Story = Callable[[Running], Coroutine[Any, Any, None]]


def in_a_new_project(story: Story, mode: str = "SelfService") -> None:
    async def main(running: Running) -> None:
        mode_patch = {"spec": {"enablementPolicy": {"mode": mode}}}
        await running.client(PLATFORM).patch(SERVICE, COMPUTE, mode_patch)
        await create_project(running, "added")
        await story(running)

    on_a_platform(main, CELL)


async def entitlement(running: Running) -> ServiceEntitlement:
    return await running.client(PLANE).get(ENTITLEMENT, COMPUTE)


async def are_provisioned(running: Running, count: int) -> bool:
    return len((await entitlement(running)).status.provisioned_resources) == count


async def reason(running: Running) -> str:
    ready = find_condition((await entitlement(running)).status.conditions, "Ready")
    return ready.reason if ready is not None else ""


async def decide(running: Running, decision: str | None, message: str = "") -> None:
    approval = None if decision is None else {"decision": decision, "message": message}
    await running.client(PLATFORM).patch(CONSUMER, SC, {"spec": {"approval": approval}})


async def becomes(running: Running, phase: str) -> None:
    await until(lambda: has_phase(running, PLANE, phase))


async def run_web(running: Running) -> None:
    await running.client(PLANE).create_plain(WORKLOAD, WEB)
    await until(lambda: machines_are(running, 2))


async def machines_are(running: Running, count: int) -> bool:
    return len(running.machines[CELL]) == count


async def renew(running: Running, phase: str) -> None:
    await running.client(PLANE).delete(ENTITLEMENT, COMPUTE)
    await until(lambda: is_gone(running.client(PLANE), ENTITLEMENT, COMPUTE), within_s=2.0)
    await request_access(running, PLANE, phase)


async def refusal(running: Running) -> str:
    with pytest.raises(Invalid) as refused:
        await running.client(PLANE).create_plain(WORKLOAD, WEB)
    assert "sc-" not in str(refused.value)
    assert "rviceE" not in str(refused.value), "no kinds of ours in what users read"
    return str(refused.value)


# --- asking


def test_a_new_project_has_a_network_and_no_access() -> None:
    async def story(running: Running) -> None:
        assert await running.client(PLANE).get(NETWORK, Ref("default", "default"))
        assert (await running.client(PLANE).list(GRANT)).items == []
        assert (await running.client(PLANE).list(LOCATION_BINDING)).items == []
        told = await refusal(running)
        assert "was not requested" in told
        assert "datumctl compute access request" in told

    in_a_new_project(story)


def test_self_service_is_active_at_once_with_quota_and_locations() -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE)
        found = await entitlement(running)
        assert found.status.entitled_at
        assert (found.status.origin, found.status.service_name) == (
            "Direct",
            "compute.datumapis.com",
        )
        assert await reason(running) == "EntitlementActive"
        await until(lambda: are_provisioned(running, 5))
        grants = (await running.client(PLANE).list(GRANT)).items
        assert len(grants) == 4
        assert all(grant.metadata.name.startswith("rg-") for grant in grants)
        bindings = (await running.client(PLANE).list(LOCATION_BINDING)).items
        assert [binding.metadata.name for binding in bindings] == ["dfw"]
        await run_web(running)

    in_a_new_project(story)


def test_what_is_not_offered_cannot_be_requested() -> None:
    async def story(running: Running) -> None:
        draft = Service(
            metadata=ObjectMeta(name="storage"),
            spec=ServiceSpec(
                service_name="storage.example.com",
                owner=ServiceOwner(producer_project_ref=LocalReference(name="first")),
            ),
        )
        await running.client(PLATFORM).create(SERVICE, draft)
        for name, told in (("storage", "does not offer it"), ("compote", "did you mean compute")):
            with pytest.raises(Invalid, match=told):
                await running.client(PLANE).create_plain(ENTITLEMENT, _request(name))
        with pytest.raises(Invalid, match=r"metadata\.name"):
            await running.client(PLANE).create_plain(ENTITLEMENT, _request("compute", "mine"))

    in_a_new_project(story)


def _request(service: str, name: str = "") -> dict[str, Any]:
    return {
        "apiVersion": ENTITLEMENT.api_version,
        "kind": ENTITLEMENT.kind,
        "metadata": {"name": name or service},
        "spec": {"serviceRef": {"name": service}},
    }


# --- deciding


def test_a_gated_service_waits_for_its_provider_and_then_says_what_it_said() -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE, "PendingApproval")
        assert await reason(running) == "EntitlementPendingApproval"
        assert "waits for approval" in await refusal(running)
        assert (await entitlement(running)).status.entitled_at is None
        await decide(running, "Approved", "welcome")
        await becomes(running, "Active")
        assert await reason(running) == "ConsumerApproved"
        ready = find_condition((await entitlement(running)).status.conditions, "Ready")
        assert ready is not None
        assert ready.message == "welcome"
        await run_web(running)

    in_a_new_project(story, "GatedByProvider")


def test_a_denial_is_no_revocation_and_can_be_asked_about_again() -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE, "PendingApproval")
        await decide(running, "Denied", "not now")
        await becomes(running, "Rejected")
        found = await entitlement(running)
        assert (await reason(running), found.status.entitled_at) == ("ConsumerDenied", None)
        told = await refusal(running)
        assert "was denied (not now)" in told
        assert "access renew" in told
        await renew(running, "PendingApproval")
        await decide(running, "Approved")
        await becomes(running, "Active")

    in_a_new_project(story, "GatedByProvider")


def withdraw(decision: str | None) -> Story:
    async def act(running: Running) -> None:
        await decide(running, decision)

    return act


async def suspend(running: Running) -> None:
    await running.client(PLATFORM).patch(CONSUMER, SC, {"spec": {"suspended": True}})


async def remove_consumer(running: Running) -> None:
    await running.client(PLATFORM).delete(CONSUMER, SC)


@pytest.mark.parametrize("revoke", [withdraw("Denied"), withdraw(None), suspend, remove_consumer])
def test_access_that_is_taken_back_takes_the_workloads_along_and_nobody_elses(
    revoke: Story,
) -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE, "PendingApproval")
        await decide(running, "Approved")
        await becomes(running, "Active")
        entitled_at = (await entitlement(running)).status.entitled_at
        await run_web(running)
        other = manifest(("first", "web"), Wanted("web:1", 1, ("DFW",)))
        await running.client(FIRST).create_plain(WORKLOAD, other)
        await until(lambda: machines_are(running, 3))
        await revoke(running)
        await becomes(running, "Rejected")
        assert "was revoked" in await refusal(running)
        await until(lambda: machines_are(running, 1))
        await until(lambda: is_gone(running.client(PLANE), WORKLOAD, Ref("default", "web")))
        assert (await entitlement(running)).status.entitled_at == entitled_at
        assert await running.client(PLANE).get(NETWORK, Ref("default", "default"))
        await asyncio.sleep(40)
        assert len(running.machines[CELL]) == 1

    in_a_new_project(story, "GatedByProvider")


def test_access_that_is_given_back_lets_workloads_run_again() -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE)
        await run_web(running)
        await decide(running, "Denied")
        await until(lambda: machines_are(running, 0))
        await until(lambda: is_gone(running.client(PLANE), WORKLOAD, Ref("default", "web")))
        await decide(running, "Approved")
        await becomes(running, "Active")
        await run_web(running)
        assert len(running.machines[CELL]) == 2

    in_a_new_project(story)


def test_a_revoked_project_is_revoked_after_a_restart() -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE)
        await run_web(running)
        await decide(running, "Denied")
        await running.stop()
        await running.start()
        await until(lambda: machines_are(running, 0))
        await becomes(running, "Rejected")
        await decide(running, None)
        await becomes(running, "Active")
        await run_web(running)
        assert len(running.machines[CELL]) == 2

    in_a_new_project(story)


def test_a_project_that_came_in_freely_stays_when_the_service_becomes_gated() -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE)
        await run_web(running)
        gated = {"spec": {"enablementPolicy": {"mode": "GatedByProvider"}}}
        await running.client(PLATFORM).patch(SERVICE, COMPUTE, gated)
        await asyncio.sleep(40)
        assert (await entitlement(running)).status.phase == "Active"
        assert len(running.machines[CELL]) == 2

    in_a_new_project(story)


@pytest.mark.parametrize("against", [withdraw("Denied"), suspend])
def test_a_word_against_a_project_is_not_shaken_off_by_asking_anew(against: Story) -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE)
        await against(running)
        await becomes(running, "Rejected")
        await renew(running, "Rejected")
        assert (await entitlement(running)).status.phase == "Rejected"
        await asyncio.sleep(40)
        assert (await entitlement(running)).status.phase == "Rejected"

    in_a_new_project(story)


def test_a_service_that_is_retired_is_unavailable() -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE)
        await run_web(running)
        platform = running.client(PLATFORM)
        with pytest.raises(Invalid, match="one step forward"):
            await platform.patch(SERVICE, COMPUTE, {"spec": {"phase": "Retired"}})
        await platform.patch(SERVICE, COMPUTE, {"spec": {"phase": "Deprecated"}})
        await asyncio.sleep(30)
        assert (await entitlement(running)).status.phase == "Active"
        await platform.patch(SERVICE, COMPUTE, {"spec": {"phase": "Retired"}})
        await becomes(running, "Rejected")
        assert await reason(running) == "ServiceNotPublished"
        assert "not available" in await refusal(running)
        await until(lambda: machines_are(running, 0))

    in_a_new_project(story)


def test_a_service_that_somebody_removed_takes_nothing_down() -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE)
        await run_web(running)
        await running.client(PLATFORM).delete(SERVICE, COMPUTE)
        await asyncio.sleep(40)
        assert len(running.machines[CELL]) == 2

    in_a_new_project(story)


# --- what comes with it, and goes


def test_what_an_entitlement_wrote_goes_with_it_and_nothing_else() -> None:
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
        assert not running.machines[CELL], "workloads leave first"
        assert [grant.metadata.name for grant in (await client.list(GRANT)).items] == ["mine"]
        assert (await client.list(LOCATION_BINDING)).items == []
        assert await is_gone(running.client(PLATFORM), CONSUMER, SC)
        assert (await running.client(FIRST).list(GRANT)).items
        await request_access(running, PLANE)
        await run_web(running)

    in_a_new_project(story)


def test_what_is_missing_is_written_again_and_what_an_operator_raised_stays() -> None:
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

    in_a_new_project(story)


def test_a_lower_limit_is_not_shaken_off_by_asking_anew() -> None:
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
            await asyncio.sleep(30)  # the garbage collector has looked, too
            assert [grant.metadata.name for grant in (await client.list(GRANT)).items] == [ref.name]
            await request_access(running, PLANE)
            grants = {g.metadata.name: g for g in (await client.list(GRANT)).items}
            assert len(grants) == len(others) + 1
            assert grants[ref.name].spec.allowances[0].buckets[0].amount == 1

    in_a_new_project(story)


def test_locations_follow_those_of_the_platform() -> None:
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

    in_a_new_project(story)


def test_services_that_a_service_needs_are_enabled_and_disabled_with_it() -> None:
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
        assert [_whose(c) for c in consumers] == [("compute", "first")]

    in_a_new_project(story)


async def _is_active(running: Running, service: str) -> bool:
    ref = Ref("", service)
    if await is_gone(running.client(PLANE), ENTITLEMENT, ref):
        return False
    return (await running.client(PLANE).get(ENTITLEMENT, ref)).status.phase == "Active"


def _whose(consumer: ServiceConsumer) -> tuple[str, str]:
    return consumer.spec.service_ref.name, consumer.spec.consumer_project_ref.name


def test_a_project_that_is_denied_can_still_be_deleted() -> None:
    async def story(running: Running) -> None:
        await request_access(running, PLANE)
        await decide(running, "Denied")
        await becomes(running, "Rejected")
        await delete_project(running, PLANE)
        with pytest.raises(ApiError, match="no plane"):
            await running.client(PLANE).list(WORKLOAD)
        assert await is_gone(running.client(PLATFORM), CONSUMER, SC)

    in_a_new_project(story)
