"""Upgrade: the current controllers find nothing to do in the settled state of an earlier release.

``upgrade/RELEASE.gz`` is the store of that release or commit, recorded by
``python -m hack.rehearse_upgrade``, which also runs both releases in turn. Here the current release
starts on the record: it recreates no instance, rewrites only the fields in ``ONCE``, and then
writes nothing.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from datum_compute.api.kinds import CLAIM, DEPLOYMENT, INSTANCE, KINDS, SERVER, WORKLOAD
from datum_compute.api.meta.codec import decode, decode_as, from_json, to_json
from datum_compute.api.meta.objects import ref_of
from datum_compute.api.planes import cell_plane, project_plane
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.app.platform import PlaneLayout, Platform, PlatformOptions, SecurityOptions
from datum_compute.app.state_credentials import PlaneTokens
from datum_compute.drivers.simulated.behaviors import SimulatedMachine
from datum_compute.drivers.simulated.driver import MachineTable, SimulatedDriver
from datum_compute.store.dump import decode_dump
from datum_compute.store.journal import Change, Entry, LoadedPlane, MemoryJournal, ObjectKey
from testkit.builders import a_workload
from testkit.sim.loop import VirtualLoop, run_virtual
from tests.controllers.running_controllers import as_new

RECORDS = sorted(Path(__file__).with_name("upgrade").glob("*.gz"))
PROJECT, CELL = project_plane("default"), cell_plane("dfw")
SETTLE_S, SILENCE_S = 120.0, 900.0
# A release may write these at its start. Users do not see them.
_OF_THE_PLATFORM = frozenset(
    {
        "clusterroles.rbac.authorization.k8s.io",
        "clusterrolebindings.rbac.authorization.k8s.io",
        "events",
        "leases.coordination.k8s.io",
    }
)
# Kinds with condition messages that were reworded since: one status write for each object.
# Instances are not among them.
_REWORDED = (
    *("clusters.cluster.karmada.io", "networkcontexts.networking.datumapis.com"),
    *("organizations.resourcemanager.miloapis.com", "projects.resourcemanager.miloapis.com"),
    *("resourcegrants.quota.miloapis.com", "resourceregistrations.quota.miloapis.com"),
    *("serviceconfigurations.services.miloapis.com", "services.services.miloapis.com"),
    *("serviceentitlements.services.miloapis.com", "subnets.networking.datumapis.com"),
    "subnetclaims.networking.datumapis.com",
)
# What the current release writes once after an upgrade, by resource and field: new fields with an
# initial value. Every entry needs a review. Instances and servers are never allowed here.
ONCE: dict[str, frozenset[tuple[str, str]]] = {
    "0.1.0": frozenset(
        {
            ("resourcebindings.work.karmada.io", "status.aggregatedStatus"),
            ("workloads.compute.datumapis.com", "status.rollout"),
            ("works.work.karmada.io", "status.manifestStatuses"),
        }
    ),
    "80698ae": frozenset(
        {
            ("workloaddeployments.compute.datumapis.com", "status.availableReplicas"),
            ("workloaddeployments.compute.datumapis.com", "status.granted"),
            ("workloaddeployments.compute.datumapis.com", "status.selector"),
            ("workloads.compute.datumapis.com", "status.availableReplicas"),
            ("workloads.compute.datumapis.com", "status.placements"),
            ("works.work.karmada.io", "status.manifestStatuses"),
            # The rollout by cities starts with the template that each city has completed.
            ("workloads.compute.datumapis.com", "status.rollout"),
            ("resourcebindings.work.karmada.io", "status.aggregatedStatus"),
            ("propagationpolicies.policy.karmada.io", "spec.placement"),
            *((resource, "status.conditions") for resource in _REWORDED),
        }
    ),
}
_WORKLOADS = "workloads.compute.datumapis.com"
_NAMED = frozenset(
    kind.resource for kind in (CLAIM, DEPLOYMENT, INSTANCE, SERVER) if not kind.stored_as
)
_UNTOUCHED = frozenset(
    f"{plural}.compute.datumapis.com" for plural in ("instances", "workloadrevisions")
) | {"servers.region.datumapis.com", "resourceclaims.quota.miloapis.com"}
_KINDS = {kind.storage: kind for kind in KINDS if not kind.stored_as}


@dataclass(frozen=True, slots=True)
class Recorded:
    at_s: float
    machines: dict[str, SimulatedMachine]
    planes: dict[str, LoadedPlane]

    @property
    def authority(self) -> str:
        key = ObjectKey("configmaps", "default", "kube-root-ca.crt")
        return str(decode(self.planes[PROJECT].objects[key][1])["data"]["ca.crt"])


class NotedJournal(MemoryJournal):
    """A journal that records all writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[Change] = []

    async def append(self, batch: Sequence[Entry]) -> None:
        self.written += [entry for entry in batch if isinstance(entry, Change)]
        await super().append(batch)


def read_record(path: Path) -> Recorded:
    head, _, dump = gzip.decompress(path.read_bytes()).partition(b"\n")
    header = decode(head)
    machines = {
        name: from_json(found, SimulatedMachine) for name, found in header["machines"].items()
    }
    return Recorded(header["at"], machines, decode_dump(dump))


def test_a_record_exists() -> None:
    assert RECORDS


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_every_object_of_the_earlier_release_is_still_valid(path: Path) -> None:
    for plane in read_record(path).planes.values():
        for key, (_, body) in plane.objects.items():
            if key.resource in _KINDS:
                decode_as(body, _KINDS[key.resource].model)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_an_upgrade_rolls_nothing_and_settles(path: Path) -> None:
    recorded = read_record(path)

    async def main(loop: VirtualLoop) -> None:
        journal, table = NotedJournal(), MachineTable(recorded.machines)
        journal.set_planes(recorded.planes)
        before = await journal.copy().load()
        platform = _platform(loop, recorded, journal, table)
        await platform.load()
        running = loop.create_task(platform.run())
        await asyncio.sleep(SETTLE_S)
        assert not running.done()
        found = frozenset(_changed_fields(recorded, journal.written))
        assert found <= ONCE[path.stem], "the new release rewrites what the old one wrote"
        assert not {resource for resource, _ in found} & _UNTOUCHED, "something is rolled"
        written = {field for resource, field in found if resource == _WORKLOADS}
        assert all(field.startswith("status.") for field in written), "a workload is changed"
        journal.written.clear()
        await asyncio.sleep(SILENCE_S)
        assert journal.written == [], "a settled platform writes"
        running.cancel()
        await asyncio.wait([running])
        assert dict(table) == recorded.machines, "a machine was touched"
        after = await journal.load()
        assert set(after) == set(before)

    run_virtual(Random(1), main)


@dataclass(frozen=True, slots=True)
class Identity:
    """The uids of deployments, instances, servers and claims by name, and the machines."""

    uids: dict[tuple[str, str, str], str]
    machines: tuple[str, ...]


def identity_of(planes: Mapping[str, LoadedPlane], machines: Iterable[str]) -> Identity:
    uids = {
        (plane, key.resource, key.name): decode(body)["metadata"]["uid"]
        for plane, loaded in planes.items()
        for key, (_, body) in loaded.objects.items()
        if key.resource in _NAMED
    }
    return Identity(uids, tuple(sorted(machines)))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_an_upgrade_keeps_names_uids_and_machines_and_gives_new_deployments_readable_names(
    path: Path,
) -> None:
    """Names of release 0.1.0 contain a hash: ``web-96a98c8de7``."""
    recorded = read_record(path)

    async def main(loop: VirtualLoop) -> None:
        journal, table = NotedJournal(), MachineTable(recorded.machines)
        journal.set_planes(recorded.planes)
        before = identity_of(await journal.copy().load(), table)
        platform = _platform(loop, recorded, journal, table)
        await platform.load()
        running = loop.create_task(platform.run())
        await asyncio.sleep(SETTLE_S)
        assert identity_of(await journal.load(), table) == before
        project, cell = (platform.bootstrap_client(plane) for plane in (PROJECT, CELL))
        web = (await project.list(WORKLOAD)).items[0]
        placement = to_json(web.spec.placements[0])
        placement["scaleSettings"]["minReplicas"] = 2
        await project.patch(WORKLOAD, ref_of(web), {"spec": {"placements": [placement]}})
        api = as_new(a_workload("x.example/api:1"), name="api")
        await project.create(WORKLOAD, api)
        await asyncio.sleep(SETTLE_S)
        (earlier,) = {name for _, kind, name in before.uids if kind == DEPLOYMENT.resource}
        names = sorted(i.metadata.name for i in (await cell.list(INSTANCE)).items)
        assert names == ["api-default-dfw-0", f"{earlier}-0", f"{earlier}-1"]
        after = identity_of(await journal.load(), table)
        assert before.uids.items() <= after.uids.items()
        assert set(before.machines) < set(after.machines)
        running.cancel()
        await asyncio.wait([running])

    run_virtual(Random(1), main)


def _changed_fields(recorded: Recorded, written: list[Change]) -> Iterator[tuple[str, str]]:
    """Yield resource and second-level field of each change.

    The field is "everything" if the object is new or deleted.
    """
    for change in written:
        if change.key.resource in _OF_THE_PLATFORM:
            continue
        held = recorded.planes[change.plane].objects.get(change.key)
        if held is None or change.body is None:
            yield change.key.resource, "everything"
            continue
        old, new = decode(held[1]), decode(change.body)
        for part in sorted({*old, *new} - {"apiVersion", "kind", "metadata"}):
            one, other = old.get(part) or {}, new.get(part) or {}
            for name in sorted({*one, *other}):
                if one.get(name) != other.get(name):
                    yield change.key.resource, f"{part}.{name}"


def _platform(
    loop: VirtualLoop, recorded: Recorded, journal: NotedJournal, table: MachineTable
) -> Platform:
    ids = iter(range(1, 10**9))

    def now() -> float:
        return recorded.at_s + 60 + loop.time()

    def new_id() -> str:
        return f"new-{next(ids)}"

    return Platform(
        PlaneLayout((PROJECT,), {CELL: SimulatedDriver(table, now=now)}),
        ProcessEnvironment(now, new_id, new_id, Random(1)),
        journal,
        PlaneTokens("token", {}),
        PlatformOptions(security=SecurityOptions(authority=recorded.authority)),
    )
