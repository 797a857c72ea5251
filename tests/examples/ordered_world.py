"""The world of the tutorial: one host with the planes, one with the controllers of ordered sets,
and between them the network, disks, deaths and faults of the simulator.

What must hold is read off the committed rows, as everywhere in the simulator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from examples.ordered_set.__main__ import define
from examples.ordered_set.controllers import controllers
from examples.ordered_set.kinds import MEMBER, ORDERED_SET

from datum_compute.api.codec import JsonObject
from datum_compute.api.errors import AlreadyExists, ApiError, Unreachable
from datum_compute.api.exchange import Request, Response
from datum_compute.api.meta import Ref
from datum_compute.api.plane import HUB, PLATFORM, PlaneName, path_prefix
from datum_compute.app.ports import Ports
from datum_compute.client.client import Client
from datum_compute.client.retrying import RetryingTransport
from datum_compute.client.transport import Transport
from datum_compute.controllers import registry
from datum_compute.planes.planes import Planes
from datum_compute.runtime.manager import Manager
from datum_compute.store.journal import Change, Entry, ObjectKey
from datum_compute.testing.chaos import Chaos
from datum_compute.testing.composed_faults import AnswerFromCache, ExpireToken, LoseHistory
from datum_compute.testing.disk import Disk
from datum_compute.testing.drawing import draw_faults
from datum_compute.testing.faults import DelayWrites, Fault, PauseHost, RepeatWrites, StaleLists
from datum_compute.testing.host import Duties, SimulatedHost, Surroundings, credentials_of
from datum_compute.testing.invariants import InvariantBroken, Observer
from datum_compute.testing.layout import CENTRE, MANAGER, USER, WorldLayout
from datum_compute.testing.network import Around, Network
from datum_compute.testing.sizes import MEDIUM
from datum_compute.testing.streams import stream
from datum_compute.testing.truth import Rows, Truth
from datum_compute.testing.virtual_loop import VirtualLoop, run_virtual

# The cell is only there because faults are drawn for worlds with cells; those are left out.
LAYOUT = WorldLayout("managers", ("alpha",), ("dfw",))
WINDOW_S = 30.0
CONVERGE_S, QUIET_S = 300.0, 120.0
SET = Ref("default", "web")
_LATE = (StaleLists, DelayWrites, RepeatWrites, PauseHost, AnswerFromCache)


@dataclass(frozen=True, slots=True)
class TutorialProcess:
    """One life of the example, as ``python -m examples.ordered_set`` runs it."""

    ports: Ports
    reach: Callable[[PlaneName], Transport]

    async def dispatch(self, request: Request) -> Response:
        raise Unreachable(f"nothing is served here: {request.path}")

    async def run(self) -> None:
        manager = Manager(controllers("hub"), lambda made: Planes(made.view), self.ports.random)
        manager.engage(HUB, client_of(self.reach(HUB)))
        await manager.run()

    def is_ready(self) -> bool:
        return True


def client_of(transport: Transport) -> Client:
    return Client(transport, prefix=path_prefix(HUB), token=f"token-of-{HUB}", agent="test")


def faults_of(seed: int) -> tuple[Fault, ...]:
    """Those that ``make sim`` draws, as far as they are about the two hosts."""
    drawn = [
        fault
        for part in range(8)
        for fault in draw_faults(stream(seed, "faults", str(part)), LAYOUT, MEDIUM, WINDOW_S)
        if "dfw" not in repr(fault)
    ]
    random = stream(seed, "faults", "blind")
    at_s = round(random.uniform(0, WINDOW_S), 2)
    link = (at_s, round(random.uniform(2, 10), 2), MANAGER, CENTRE)
    blind = random.choice((LoseHistory(*link), ExpireToken(*link), AnswerFromCache(*link, 5.0)))
    return (*drawn[: seed % 6], blind)


class OrderedWorld:
    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self.loop = loop
        self.seed = seed
        self.truth = Truth({}, loop.time)
        self.observer = Observer(self.truth, ())
        self.observer.on_broken = self._stop
        self.seen: dict[str, int] = {}
        # Whoever starts on an old list, or writes late, may do the right thing too late.
        self.ordered = not any(isinstance(fault, _LATE) for fault in faults_of(seed))
        self.network = Network(
            lambda part: stream(seed, "network", part), self.truth.version_before, self._count
        )
        self._build_hosts()
        self.user = client_of(self.network.transport(USER, CENTRE))
        self.chaos = Chaos(
            loop=loop,
            layout=LAYOUT,
            network=self.network,
            hosts=self.network.hosts,
            providers={},
            operator=lambda _plane: self.user,
            say=self.observer.say,
            forget=self.truth.forget,
            restored=self.truth.restore,
            tamper=lambda _plane, _ref: None,
        )

    async def run(self) -> None:
        for host in self.network.hosts.values():
            host.start()
        await self.insist(lambda: define(self.user))
        acting = self.loop.create_task(self._act())
        raging = self.loop.create_task(self.chaos.reign(faults_of(self.seed)))
        await asyncio.sleep(WINDOW_S + 10)
        self.chaos.heal()
        await acting
        if raging.done():
            await raging
        await self._settles(lambda: sets_missing(self.truth, {"web": (2, "web:3")}))
        await self.insist(lambda: self.user.delete(ORDERED_SET, SET))
        await self._settles(lambda: sets_missing(self.truth, {}))

    async def _act(self) -> None:
        """What the user of the set asks for, each in its time."""
        random = stream(self.seed, "workload")
        spec: JsonObject = {"replicas": 3, "image": "web:1"}
        made = {
            "apiVersion": ORDERED_SET.api_version,
            "kind": ORDERED_SET.kind,
            "metadata": {"name": SET.name, "namespace": SET.namespace},
            "spec": spec,
        }
        await self.insist(lambda: self.user.create_plain(ORDERED_SET, made))
        for changed in ({"replicas": 5}, {"image": "web:2"}, {"replicas": 2}, {"image": "web:3"}):
            await asyncio.sleep(random.uniform(0, WINDOW_S / 3))
            patch = {"spec": dict(changed)}
            await self.insist(lambda patch=patch: self.user.patch(ORDERED_SET, SET, patch))  # type: ignore[misc]

    async def insist(self, ask: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await ask()
            except AlreadyExists:
                return
            except (ApiError, Unreachable):
                await asyncio.sleep(0.3)
            else:
                return

    async def _settles(self, missing: Callable[[], str]) -> None:
        """As it is wanted in time, and then silent."""
        deadline_s = self.loop.time() + CONVERGE_S
        while left := missing() or ("late" if self.network.on_the_way else ""):
            if self.loop.time() > deadline_s:
                raise InvariantBroken(f"I6: not converged: {left}")
            await asyncio.sleep(1)
        await asyncio.sleep(35)  # what was waited for is looked at once more
        writes = self.truth.writes
        await asyncio.sleep(QUIET_S)
        if self.truth.writes != writes:
            raise InvariantBroken(f"I6: a settled set writes: {self.observer.trace[-3:]}")

    def _build_hosts(self) -> None:
        around = Surroundings(
            loop=self.loop,
            credentials=credentials_of((PLATFORM, HUB)),
            providers={},
            reach=self._reach,
            on_commit=self._on_commit,
            on_death=self.network.forget_host,
            on_exit=self._on_exit,
            on_answer=lambda _request, _response: None,
        )
        neighbours = tuple(c for c in registry.NEIGHBOURS if c.role in ("hub", "platform"))
        cast = (
            Duties(CENTRE, (PLATFORM, HUB), True, neighbours, ()),
            Duties(MANAGER, (), False, (), (HUB,), process=TutorialProcess),
        )
        for number, duties in enumerate(cast):
            disk = Disk(stream(self.seed, "disk", duties.name))
            ids = stream(self.seed, "ids", duties.name)
            self.network.hosts[duties.name] = SimulatedHost(duties, around, disk, ids, number)

    def _reach(self, source: str, _plane: PlaneName, around: Around) -> Transport:
        link = around(self.network.transport(source, CENTRE))
        random = stream(self.seed, "network", f"retries-{source}")
        return link if source == CENTRE else RetryingTransport(link, random)

    def _on_commit(self, number: int, batch: Sequence[Entry]) -> None:
        before = dict(self.truth.rows.get(HUB, {}))
        self.observer.on_commit(number, batch)
        for entry in batch:
            if isinstance(entry, Change) and (complaint := self._complaint(before, entry)):
                self.observer.complain(complaint)

    def _complaint(self, before: Rows, change: Change) -> str:
        if change.key.resource == MEMBER.resource and change.key not in before and change.body:
            return member_complaint(self.truth, change.key, ordered=self.ordered)
        if change.key.resource == ORDERED_SET.resource and change.body is None:
            return release_complaint(self.truth, before.get(change.key))
        return ""

    def _on_exit(self, host: str, error: BaseException) -> None:
        if not self.network.hosts[host].disk.failed:
            self.observer.complain(f"{host} ended: {error!r}")

    def _stop(self, error: InvariantBroken) -> None:
        self.loop.call_exception_handler({"message": str(error), "exception": error})

    def _count(self, sign: str) -> None:
        self.seen[sign] = self.seen.get(sign, 0) + 1


# --- what must hold


def member_complaint(truth: Truth, key: ObjectKey, *, ordered: bool) -> str:
    """A new member has a place of its own, and all before it are there and ready."""
    made = truth.rows[HUB][key]
    others = {k: row for k, row in members_of(truth, _owner(made)) if k != key}
    places = {row["spec"]["ordinal"]: row for row in others.values()}
    ordinal = made["spec"]["ordinal"]
    if ordinal in places:
        return f"I1: two members are in place {ordinal}"
    ready = [n for n, row in places.items() if row.get("status", {}).get("ready")]
    if ordered and not set(range(ordinal)) <= set(ready):
        return f"I12: member {ordinal} is made while only {sorted(ready)} are ready"
    return ""


def release_complaint(truth: Truth, gone: JsonObject | None) -> str:
    """A set goes only when none of its members is left."""
    left = [] if gone is None else list(members_of(truth, gone["metadata"]["uid"]))
    return f"I15: the set left before {len(left)} of its members" if left else ""


def members_of(truth: Truth, uid: str) -> Iterator[tuple[ObjectKey, JsonObject]]:
    for key, row in truth.of_resource(HUB, MEMBER.resource):
        if _owner(row) == uid:
            yield key, row


def _owner(member: JsonObject) -> str:
    owners: list[Any] = member["metadata"].get("ownerReferences") or [{"uid": ""}]
    return str(owners[0]["uid"])


def sets_missing(truth: Truth, wanted: Mapping[str, tuple[int, str]]) -> str:
    """In what the sets and their members are not yet as wanted: replicas and image by name."""
    sets = {key.name: row for key, row in truth.of_resource(HUB, ORDERED_SET.resource)}
    members = [row["spec"] | row.get("status", {}) for _, row in _all_members(truth)]
    if sorted(sets) != sorted(wanted):
        return f"sets are {sorted(sets)}"
    asked = [
        {"ordinal": ordinal, "image": image, "ready": True}
        for replicas, image in wanted.values()
        for ordinal in range(replicas)
    ]
    if sorted(members, key=repr) != sorted(asked, key=repr):
        return f"members are {members}"
    for name, (replicas, _) in wanted.items():
        status = sets[name].get("status", {})
        counts = [status.get(n) for n in ("replicas", "readyReplicas", "updatedReplicas")]
        if counts != [replicas] * 3:
            return f"set {name} counts {counts}"
    return ""


def _all_members(truth: Truth) -> Iterator[tuple[ObjectKey, JsonObject]]:
    return truth.of_resource(HUB, MEMBER.resource)


def run_ordered_world(seed: int) -> OrderedWorld:
    """Raises what the world broke."""

    async def main(loop: VirtualLoop) -> OrderedWorld:
        world = OrderedWorld(loop, seed)
        await world.run()
        return world

    return run_virtual(stream(seed, "schedule"), main)
