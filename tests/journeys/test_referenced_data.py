"""ConfigMaps and Secrets on the whole platform.

They are copied from the project over the hub to every cell, reported when missing, used at a start,
and deleted with the last reference.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import Container, EnvVar, InstanceTemplate, Runtime, Sandbox
from datum_compute.api.conditions import Condition, find_condition
from datum_compute.api.core import ConfigMap, Namespace, Secret
from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.kinds import (
    CLUSTER_ROLE,
    CONFIG_MAP,
    DEPLOYMENT,
    INSTANCE,
    KINDS,
    NAMESPACE,
    POLICY,
    SECRET,
    WORKLOAD,
)
from datum_compute.api.meta.codec import ApiStruct, JsonObject, decode, from_json, to_json
from datum_compute.api.meta.objects import KindInfo, ObjectMeta, Ref
from datum_compute.api.planes import HUB, PlaneName, cell_plane
from datum_compute.client.client import Client
from testkit.builders import a_deployment
from testkit.sim.loop import VirtualLoop, run_virtual
from testkit.sim.single_host import single_host
from tests.journeys.platform import CELL, PROJECT, WEB, Platform, on_platform

ENV = [
    {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "web", "key": "colour"}}},
    {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}},
]
FILES = [{"name": "all", "configMap": {"name": "web"}}]
BOTH_KINDS: tuple[KindInfo[Any], ...] = (CONFIG_MAP, SECRET)
NOT_REPORTED = Condition(type="Ready", status="Unknown", reason="")
BYTES = "hunter2-is-the-password"


async def deploy(platform: Platform, *, env: Any = ENV, replicas: int = 1) -> None:
    """Deploy a workload, and add the references to data before it has started."""
    await platform.deploy("web:0", replicas=replicas)
    await refer(platform, env=env)


async def refer(platform: Platform, *, env: Any = ENV, image: str = "web:1") -> None:
    container = {"name": "app", "image": image, "env": env}
    attached = [{"name": "all", "mountPath": "/etc/web"}]
    container |= {"volumeAttachments": attached} if env else {}
    spec = {"runtime": {"sandbox": {"containers": [container]}}, "volumes": FILES if env else []}
    await platform.change(template={"spec": spec})


async def put(platform: Platform, kind: KindInfo[Any], name: str, data: JsonObject) -> None:
    """Create or update the source."""
    field = "stringData" if kind is SECRET else "data"
    body: JsonObject = {
        "apiVersion": "v1",
        "kind": kind.kind,
        "metadata": {"name": name},
        field: data,
    }
    ref = Ref("default", name)
    await platform.until(lambda: is_up(platform), "the platform responds")
    if any(o.metadata.name == name for o in (await platform.project.list(kind)).items):
        await platform.project.patch(kind, ref, {field: data})
    else:
        body["metadata"]["namespace"] = "default"
        await platform.project.create_plain(kind, body)


async def is_up(platform: Platform) -> bool:
    try:
        await platform.project.get(NAMESPACE, Ref("", "default"))
    except (ApiError, Unreachable):
        return False
    return True


async def sources(platform: Platform, *, password: str = BYTES) -> None:
    await put(platform, CONFIG_MAP, "web", {"colour": "blue"})
    await put(platform, SECRET, "db", {"password": password})


async def ready_condition(platform: Platform) -> Condition:
    found = await platform.instances()
    conditions = found[0].status.conditions if found else []
    return find_condition(conditions, "Ready") or NOT_REPORTED


async def until_instance_reports(platform: Platform, reason: str) -> Condition:
    async def holds() -> bool:
        return (await ready_condition(platform)).reason == reason

    await platform.until(holds, f"the instance reports {reason}")
    return await ready_condition(platform)


async def copies(platform: Platform) -> dict[str, list[str]]:
    """Return the copies of sources on hub and cell, by plane."""
    found: dict[str, list[str]] = {}
    for plane in (HUB, CELL):
        client = platform.host.operator(plane)
        marked = [
            f"{kind.kind}/{o.metadata.name}"
            for kind in BOTH_KINDS
            for o in (await client.list(kind)).items
            if o.metadata.labels.get(labels.REFERENCED_DATA) == "true"
        ]
        found[plane] = sorted(marked)
    return found


BOTH = ["ConfigMap/web", "Secret/db"]


def test_sources_are_delivered_to_the_machine_and_their_versions_recorded() -> None:
    async def story(platform: Platform) -> None:
        await sources(platform)
        await deploy(platform)
        await platform.until_ready("web:1")
        (instance,) = await platform.instances()
        pins = {f"{p.kind}/{p.name}": p.resource_version for p in instance.status.referenced_data}
        for kind, name in zip(BOTH_KINDS, ("web", "db"), strict=True):
            source = await platform.project.get(kind, Ref("default", name))
            assert pins[f"{kind.kind}/{name}"] == source.metadata.resource_version
        (machine,) = platform.host.providers[CELL].machines.values()
        assert sorted(machine.data) == sorted(f"{name}@{v}" for name, v in pins.items())
        assert await copies(platform) == {HUB: BOTH, CELL: BOTH}
        projected = (await platform.project.list(INSTANCE)).items[0]
        assert projected.status.referenced_data == instance.status.referenced_data

    on_platform(story)


def test_missing_sources_block_the_instance_and_are_reported_until_they_exist() -> None:
    async def story(platform: Platform) -> None:
        await deploy(platform)
        held = await until_instance_reports(platform, "SourceNotFound")
        assert "ConfigMap/web does not exist" in held.message
        assert "Secret/db does not exist" in held.message
        condition = await platform.until_reason("SourceNotFound")
        assert "Secret/db does not exist" in condition.message
        assert platform.host.providers[CELL].machines == {}
        await put(platform, SECRET, "db", {"user": "me"})
        await put(platform, CONFIG_MAP, "web", {"colour": "blue"})

        async def names_key() -> bool:
            return "Secret/db has no key password" in (await ready_condition(platform)).message

        await platform.until(names_key, "the key that is missing is named")
        await put(platform, SECRET, "db", {"password": BYTES})
        began = asyncio.get_running_loop().time()
        await platform.until_ready("web:1")
        assert asyncio.get_running_loop().time() - began < 10, "woken, not found by a recheck"

    on_platform(story)


def test_unreadable_sources_are_reported() -> None:
    async def story(platform: Platform) -> None:
        await sources(platform)
        for plane in (PROJECT, CELL):
            await take_away_secrets(platform, plane)
        await deploy(platform)
        held = await until_instance_reports(platform, "SourceUnauthorized")
        assert "Secret/db may not be read by the platform" in held.message
        assert "ConfigMap" not in held.message
        await platform.until_reason("SourceUnauthorized")

    on_platform(story)


async def take_away_secrets(platform: Platform, plane: PlaneName) -> None:
    """Replace the wildcard in the role of the controllers by all resources except Secrets."""
    operator, ref = platform.host.operator(plane), Ref("", "manager")
    role = await operator.get(CLUSTER_ROLE, ref)
    named = sorted({kind.plural for kind in KINDS} - {"secrets"})
    rules = []
    for rule in to_json(role)["rules"]:
        resources = [r for r in rule.get("resources", ()) if r != "secrets"]
        rules.append({**rule, "resources": named if resources == ["*"] else resources})
    await operator.patch_plain(CLUSTER_ROLE, ref, {"rules": [r for r in rules if r["resources"]]})


def test_missing_optional_sources_do_not_block() -> None:
    absent = {"secretKeyRef": {"name": "none", "key": "x", "optional": True}}

    async def story(platform: Platform) -> None:
        await put(platform, CONFIG_MAP, "web", {"colour": "blue"})
        await deploy(platform, env=[{"name": "A", "valueFrom": absent}])
        await platform.until_ready("web:1")
        (instance,) = await platform.instances()
        assert instance.spec.controller.scheduling_gates == []
        assert [source.name for source in instance.status.referenced_data] == ["web"]

    on_platform(story)


def test_a_changed_source_starts_no_rollout_and_is_used_by_the_next_restart() -> None:
    async def story(platform: Platform) -> None:
        await sources(platform)
        await deploy(platform)
        await platform.until_ready("web:1")
        (before,) = await platform.instances()
        await sources(platform, password="changed")
        await asyncio.sleep(60)
        (later,) = await platform.instances()
        assert later.metadata.uid == before.metadata.uid
        assert later.status.referenced_data == before.status.referenced_data

        await sources(platform, password="changed again")
        secret = await platform.project.get(SECRET, Ref("default", "db"))
        stamp = {"compute.datumapis.com/restartedAt": "2026-01-02T00:00:00Z"}
        await platform.project.patch(
            WORKLOAD, WEB, {"spec": {"template": {"metadata": {"annotations": stamp}}}}
        )

        async def restarted() -> bool:
            found = await platform.instances()
            return bool(found) and found[0].metadata.uid != before.metadata.uid

        await platform.until(restarted, "a new instance")
        await platform.until_ready("web:1")
        (after,) = await platform.instances()
        pins = {p.name: p.resource_version for p in after.status.referenced_data}
        assert pins["db"] == secret.metadata.resource_version

    on_platform(story)


def test_a_deleted_source_stops_nothing_and_its_copy_is_deleted_with_the_last_reference() -> None:
    async def story(platform: Platform) -> None:
        await sources(platform)
        await deploy(platform)
        await platform.until_ready("web:1")
        await platform.project.delete(SECRET, Ref("default", "db"), uid="")
        await asyncio.sleep(60)
        assert (await ready_condition(platform)).status == "True"
        assert await copies(platform) == {HUB: BOTH, CELL: BOTH}

        await refer(platform, env=[ENV[0]], image="web:2")

        async def one_left() -> bool:
            return await copies(platform) == {HUB: ["ConfigMap/web"], CELL: ["ConfigMap/web"]}

        await platform.until(one_left, "the Secret without references is gone")
        await platform.until_ready("web:2")
        await platform.project.delete(WORKLOAD, WEB, uid="")

        async def all_gone() -> bool:
            hub = platform.host.operator(HUB)
            policies = [
                p
                for p in (await hub.list(POLICY)).items
                if p.metadata.labels.get(labels.REFERENCED_DATA)
            ]
            left = (await platform.project.list(DEPLOYMENT)).items
            return not policies and not left and await copies(platform) == {HUB: [], CELL: []}

        await platform.until(all_gone, "nothing of it is left")

    on_platform(story)


def test_a_source_of_two_cities_is_copied_to_both_and_deleted_from_each_on_its_own() -> None:
    other = cell_plane("iad")

    async def main(loop: VirtualLoop) -> None:
        host = single_host(loop, projects=(PROJECT,), cells=(CELL, other))
        host.host.start()
        platform = Platform(host, host.client(PROJECT), host.client(CELL))
        await sources(platform)
        await deploy(platform)
        await place(platform, "DFW", "IAD")
        await platform.until(lambda: has_sources(platform, CELL, other), "both have both sources")
        await place(platform, "IAD")
        await platform.until(lambda: has_sources(platform, other), "only the city in use has them")

    run_virtual(Random(1), main)


async def place(platform: Platform, *cities: str) -> None:
    scale = {"minReplicas": 1}
    placed = {"name": "default", "cityCodes": list(cities), "scaleSettings": scale}
    await platform.change(placements=[placed])


async def has_sources(platform: Platform, *cells: PlaneName) -> bool:
    """Return True if exactly these cells have both sources and machines started with them."""
    for cell, provider in platform.host.providers.items():
        client = platform.host.operator(cell)
        found = [o.metadata.name for k in BOTH_KINDS for o in (await client.list(k)).items]
        sources = [len(machine.data) for machine in provider.alive().values()]
        expected = (["web", "db"], [2]) if cell in cells else ([], [])
        if ([name for name in found if name in ("web", "db")], sources) != expected:
            return False
    return True


def test_a_lost_machine_is_restarted_with_the_copy_of_a_deleted_source() -> None:
    async def story(platform: Platform) -> None:
        await sources(platform)
        await deploy(platform)
        await platform.until_ready("web:1")
        await platform.project.delete(SECRET, Ref("default", "db"), uid="")
        await asyncio.sleep(5)
        machines = platform.host.providers[CELL].machines
        machines.clear()
        await asyncio.sleep(60)  # without an event, only the periodic check finds the loss
        (machine,) = machines.values()
        assert any(name.startswith("Secret/db@") for name in machine.data)
        await platform.until_ready("web:1")

    on_platform(story)


def test_only_secrets_and_works_contain_secret_bytes() -> None:
    """A Work contains the objects that the hub sends to a cell, as in Karmada."""
    encoded = "aHVudGVyMi1pcy10aGUtcGFzc3dvcmQ"

    async def story(platform: Platform) -> None:
        await sources(platform)
        await deploy(platform)
        await platform.until_ready("web:1")
        where = set()
        for change in platform.writes:
            body = change.body or b""
            if BYTES.encode() in body or encoded.encode() in body:
                where.add(decode(body)["kind"])
        assert where == {"Secret", "Work"}
        machines = repr(platform.host.providers[CELL].machines)
        assert BYTES not in machines

    on_platform(story)


# --- one plane: the sources are in the namespace of the deployment


async def deploy_in_cell_namespace(platform: Platform) -> Client:
    """Create a deployment without a project, in a namespace that has a quota."""
    await platform.until(lambda: is_up(platform), "the platform responds")
    cell = platform.host.operator(CELL)
    identity = {labels.UPSTREAM_NAMESPACE: "default", labels.UPSTREAM_CLUSTER: "cluster-default"}
    namespace = Namespace(metadata=ObjectMeta(name="shop", labels=identity))
    await cell.create(NAMESPACE, namespace)
    variables = from_json({"v": ENV}, Variables).v
    made = a_deployment()
    template = made.spec.template
    sandbox = Sandbox(containers=[Container(name="app", image="web:1", env=variables)])
    spec = msgspec.structs.replace(template.spec, runtime=Runtime(sandbox=sandbox))
    await cell.create(
        DEPLOYMENT,
        WorkloadDeployment(
            metadata=ObjectMeta(name="web-dfw", namespace="shop"),
            spec=msgspec.structs.replace(made.spec, template=InstanceTemplate(spec=spec)),
        ),
    )
    return cell


class Variables(ApiStruct, frozen=True, kw_only=True):
    v: list[EnvVar]


async def put_beside(cell: Client, **data: str) -> None:
    await cell.create(
        SECRET, Secret(metadata=ObjectMeta(name="db", namespace="shop"), string_data=data)
    )


def test_on_one_plane_an_instance_waits_for_sources_in_its_namespace() -> None:
    async def story(platform: Platform) -> None:
        cell = await deploy_in_cell_namespace(platform)
        held = await until_instance_reports(platform, "SourceNotFound")
        assert "Secret/db does not exist" in held.message
        web = ConfigMap(metadata=ObjectMeta(name="web", namespace="shop"), data={"colour": "b"})
        await cell.create(CONFIG_MAP, web)
        await put_beside(cell, password=BYTES)
        began = asyncio.get_running_loop().time()
        await until_instance_reports(platform, "Available")
        assert asyncio.get_running_loop().time() - began < 5, "woken, not found by a recheck"

    on_platform(story)


def test_on_one_plane_a_lost_machine_waits_for_a_deleted_source_and_reports_it() -> None:
    async def story(platform: Platform) -> None:
        cell = await deploy_in_cell_namespace(platform)
        web = ConfigMap(metadata=ObjectMeta(name="web", namespace="shop"), data={"colour": "b"})
        await cell.create(CONFIG_MAP, web)
        await put_beside(cell, password=BYTES)
        await until_instance_reports(platform, "Available")
        await cell.delete(SECRET, Ref("shop", "db"), uid="")
        await asyncio.sleep(60)
        assert (await ready_condition(platform)).reason == "Available"

        platform.host.providers[CELL].machines.clear()
        await until_instance_reports(platform, "SourceNotFound")
        assert platform.host.providers[CELL].machines == {}
        await put_beside(cell, password="another")
        began = asyncio.get_running_loop().time()
        await until_instance_reports(platform, "Available")
        assert asyncio.get_running_loop().time() - began < 5, "woken, not found by a recheck"
        secret = await cell.get(SECRET, Ref("shop", "db"))
        (instance,) = await platform.instances()
        pins = {p.name: p.resource_version for p in instance.status.referenced_data}
        assert pins["db"] == secret.metadata.resource_version

    on_platform(story)


def test_data_is_recreated_with_the_deployment_after_a_hub_namespace_was_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Regression: no instance for a minute, and tracebacks for temporary refusals."""

    async def story(platform: Platform) -> float:
        await platform.wait_until_booted()
        await put(platform, CONFIG_MAP, "web", {"colour": "blue"})
        await put(platform, SECRET, "db", {"password": BYTES})
        await deploy(platform)
        await platform.until_ready("web:1")
        namespace = await platform.project.get(NAMESPACE, Ref("", "default"))
        await asyncio.sleep(10)
        hub = platform.host.operator(HUB)
        await hub.delete(NAMESPACE, Ref("", f"ns-{namespace.metadata.uid}"))
        loop = asyncio.get_running_loop()
        started_s = loop.time()

        async def is_down() -> bool:
            return (await platform.workload()).status.ready_replicas == 0

        await platform.until(is_down, "its instance goes with the namespace")
        await platform.until_ready("web:1")
        return loop.time() - started_s

    assert on_platform(story, boot_s=0.0) < 10
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
