"""A world from a seed: one host with a project, the hub and cells, a user, and crashes.

The scenario is a user's whole story: deploy, change the image, scale, destroy. Between the steps
the world must converge to what was asked for; at the end nothing may be left anywhere.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random

from datum_compute.api.codec import JsonObject
from datum_compute.api.errors import AlreadyExists, ApiError, NotFound, Unreachable
from datum_compute.api.instance import (
    Container,
    InstanceTemplate,
    Runtime,
    Sandbox,
    TemplateSpec,
)
from datum_compute.api.kinds import INSTANCE, WORKLOAD
from datum_compute.api.meta import ObjectMeta, Ref
from datum_compute.api.plane import cell_plane, project_plane
from datum_compute.api.workload import Placement, ScaleSettings, Workload, WorkloadSpec
from datum_compute.planning.ordinals import is_ready
from datum_compute.store.journal import Entry
from datum_compute.testing.host import Crash, SimulatedHost
from datum_compute.testing.invariants import InvariantBroken, Observer, check_machines
from datum_compute.testing.virtual_loop import Deadlock, VirtualLoop, run_virtual

PROJECT = project_plane("default")
CELLS = (cell_plane("dfw"),)
WEB = Ref("default", "web")

CONVERGE_S = 60.0
QUIET_S = 120.0


class WorldBroken(AssertionError):
    """A run broke a rule; carries the trace that led there."""

    def __init__(self, cause: Exception, trace: Sequence[str]) -> None:
        super().__init__(str(cause) or repr(cause))
        self.trace = tuple(trace)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run showed. Equal seeds give equal outcomes, in any process."""

    commits: int
    crashes: int
    virtual_s: float
    trace: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()


def run_world(seed: int, crashes: Sequence[Crash] = ()) -> Outcome:
    """Tell the user's story once; raises WorldBroken with the trace so far if a rule breaks."""
    random = Random(seed)  # noqa: S311 - reproducible on purpose
    observer = Observer()

    async def main(loop: VirtualLoop) -> Outcome:
        world = World(loop, random, observer, crashes)
        await world.tell_story()
        return Outcome(
            world.host.disk.commits, world.host.crashed, loop.time(), tuple(observer.trace)
        )

    try:
        return run_virtual(Random(random.getrandbits(64)), main)  # noqa: S311
    except (InvariantBroken, Deadlock) as error:
        raise WorldBroken(error, observer.trace) from error


def random_crashes(seed: int, commits_max: int) -> list[Crash]:
    """Up to three crashes at commits that the seed chooses."""
    random = Random(f"crashes-{seed}")  # noqa: S311
    return [
        Crash(random.randint(1, commits_max), durable=random.random() < 0.5)
        for _ in range(random.randint(0, 3))
    ]


class World:
    def __init__(
        self, loop: VirtualLoop, random: Random, observer: Observer, crashes: Sequence[Crash]
    ) -> None:
        self._loop = loop
        self._observer = observer
        self.broken: Exception | None = None
        self.host = SimulatedHost(
            loop,
            Random(random.getrandbits(64)),  # noqa: S311
            projects=(PROJECT,),
            cells=CELLS,
            crashes=crashes,
            on_commit=self._on_commit,
        )
        self.user = self.host.client(PROJECT)

    async def tell_story(self) -> None:
        self.host.start()
        await self._insist(lambda: self.user.create(WORKLOAD, web("web:1", replicas=2)))
        await self._converge(lambda: self._runs("web:1", 2))
        await self._change({"template": _template_patch("web:2")})
        await self._converge(lambda: self._runs("web:2", 2))
        await self._change({"placements": _placements_patch(1)})
        await self._converge(lambda: self._runs("web:2", 1))
        await self._be_quiet()
        await self._insist(lambda: self.user.delete(WORKLOAD, WEB))
        await self._converge(self._is_gone_for_the_user)
        await self._converge(self._nothing_left)
        await self._be_quiet()

    def _on_commit(self, _number: int, batch: Sequence[Entry]) -> None:
        try:
            self._observer.check_commit(self._loop.time(), batch)
            for machines in self.host.disk.machines.values():
                check_machines(machines, self.host.unix_s())
        except InvariantBroken as error:
            self.broken = self.broken or error

    async def _change(self, spec: JsonObject) -> None:
        await self._insist(lambda: self.user.patch(WORKLOAD, WEB, {"spec": spec}))

    async def _insist(self, ask: Callable[[], Awaitable[object]]) -> None:
        """As a person would: no answer means asking again; already done is done."""
        while True:
            try:
                await ask()
            except (AlreadyExists, NotFound):
                return
            except (ApiError, Unreachable):
                await asyncio.sleep(0.5)
            else:
                return

    async def _converge(self, holds: Callable[[], Awaitable[str]]) -> None:
        """``holds`` answers what is still missing, or the empty string."""
        deadline = self._loop.time() + CONVERGE_S
        missing = "not looked yet"
        while missing:
            try:
                missing = await holds()
            except (ApiError, Unreachable) as error:
                missing = str(error)
            if self.broken is not None:
                raise self.broken
            if missing and self._loop.time() > deadline:
                raise InvariantBroken(f"I6: not converged after {CONVERGE_S} s: {missing}")
            await asyncio.sleep(0.1)

    async def _be_quiet(self) -> None:
        """I6: a settled system writes nothing."""
        await asyncio.sleep(5)
        before = self._observer.writes
        await asyncio.sleep(QUIET_S)
        if self._observer.writes != before:
            lines = "\n".join(self._observer.trace[before - self._observer.writes :])
            raise InvariantBroken(f"I6: writes in a settled system:\n{lines}")

    async def _runs(self, image: str, replicas: int) -> str:
        """The machines, the user's workload and the projections all say the same."""
        machines = [m.image for table in self.host.disk.machines.values() for m in table.values()]
        if machines != [image] * replicas:
            return f"machines run {machines}"
        workload = await self.user.get(WORKLOAD, WEB)
        status = workload.status
        counts = (
            status.replicas,
            status.ready_replicas,
            status.updated_replicas,
            status.current_replicas,
            status.desired_replicas,
        )
        if counts != (replicas,) * 5:
            return f"the workload counts {counts}"
        if status.observed_generation != workload.metadata.generation:
            return "the status is about an older generation"
        instances = (await self.user.list(INSTANCE, "default")).items
        ready = [i.metadata.name for i in instances if is_ready(i)]
        return "" if len(ready) == len(instances) == replicas else f"ready projections: {ready}"

    async def _is_gone_for_the_user(self) -> str:
        """I15: nothing is called gone while a machine of it still runs on a cell that answers."""
        try:
            await self.user.get(WORKLOAD, WEB)
        except NotFound:
            machines = [m for table in self.host.disk.machines.values() for m in table]
            if machines:
                raise InvariantBroken(f"I15: called gone while it runs: {machines}") from None
            return ""
        return "the workload is still there"

    async def _nothing_left(self) -> str:
        """I5: a deleted workload leaves nothing on any plane, and no machine."""
        left = [m for table in self.host.disk.machines.values() for m in table]
        for plane, loaded in (await self.host.disk.journal.load()).items():
            left += [
                f"{plane} {key}" for key, (_, body) in loaded.objects.items() if b"web" in body
            ]
        return ", ".join(sorted(left))


def web(image: str, replicas: int) -> Workload:
    container = Container(name="app", image=image)
    return Workload(
        metadata=ObjectMeta(name=WEB.name, namespace=WEB.namespace),
        spec=WorkloadSpec(
            template=InstanceTemplate(
                spec=TemplateSpec(runtime=Runtime(sandbox=Sandbox(containers=[container])))
            ),
            placements=[
                Placement(
                    name="default",
                    city_codes=["DFW"],
                    scale_settings=ScaleSettings(min_replicas=replicas),
                )
            ],
        ),
    )


def _template_patch(image: str) -> JsonObject:
    containers = [{"name": "app", "image": image}]
    return {"spec": {"runtime": {"sandbox": {"containers": containers}}}}


def _placements_patch(replicas: int) -> list[JsonObject]:
    return [{"name": "default", "cityCodes": ["DFW"], "scaleSettings": {"minReplicas": replicas}}]
