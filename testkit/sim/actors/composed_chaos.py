"""Makes the faults of ``composed_faults.py`` happen."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeGuard, assert_never

from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.kinds import DEPLOYMENT, KINDS, NAMESPACE
from datum_compute.api.meta import KindInfo, Ref
from datum_compute.api.plane import PlaneName, cell_plane, path_prefix
from datum_compute.client.client import Client
from datum_compute.store.journal import Change, Entry
from testkit.sim.disk import CrashPoint
from testkit.sim.scenario import composed_faults as f
from testkit.sim.scenario.layout import host_of_plane
from testkit.sim.single_host import HostTransport

if TYPE_CHECKING:
    from testkit.sim.actors.chaos import Chaos

# A disk that hangs, and how long the hub has to see what was stored last.
_HANGS, _LAST_WORDS_S = 10_000.0, 0.5
_TOUCHED = {"metadata": {"annotations": {"migration.test/done": "true"}}}


async def bend_composed(chaos: Chaos, fault: f.ComposedFault) -> None:
    match fault:
        case f.LoseHistory():
            await _lose_history(chaos, fault)
        case f.AnswerFromCache():
            await _answer_from_cache(chaos, fault)
        case f.ExpireToken():
            bends = chaos.network.bends(fault.source, fault.target)
            bends.unauthorized += 1
            await chaos.last(fault.for_s)
            bends.unauthorized -= 1
        case f.RestorePlane():
            await _restore(chaos, fault)
        case f.TouchEverything():
            await _touch_everything(chaos.operator(PlaneName(fault.plane)))
        case f.SlowDisk(_, for_s, host, factor):
            disk = chaos.hosts[host].disk
            disk.slowness *= factor
            await chaos.last(for_s)
            disk.slowness /= factor
        case f.DeleteNewNamespace(_, host):
            chaos.hosts[host].disk.crash_points.append(_deletes_new_namespace(chaos, host))
        case f.DieWithCopy():
            await _die_with_copy(chaos, fault)
        case f.BurnMachines():
            await _burn(chaos, fault)
        case _:
            assert_never(fault)


async def _lose_history(chaos: Chaos, fault: f.LoseHistory) -> None:
    bends = chaos.network.bends(fault.source, fault.target)
    bends.watches_refused += 1
    for pipe in chaos.network.pipes(fault.source, fault.target):
        pipe.close()
    await chaos.last(fault.for_s)
    chaos.hosts[fault.target].forget_history()
    bends.watches_refused -= 1


async def _answer_from_cache(chaos: Chaos, fault: f.AnswerFromCache) -> None:
    bends = chaos.network.bends(fault.source, fault.target)
    bends.cached_s.append(fault.age_s)
    chaos.hosts[fault.source].crash(down_s=0.1)
    await chaos.last(fault.for_s)
    bends.cached_s.remove(fault.age_s)


async def _restore(chaos: Chaos, fault: f.RestorePlane) -> None:
    plane = PlaneName(fault.plane)
    host = chaos.hosts[host_of_plane(chaos.layout, plane)]
    backup = host.disk.journal.copy()
    await chaos.last(fault.for_s)
    if host.name in chaos.lost:
        return
    host.crash(down_s=float("inf"))
    host.disk.journal.restore(plane, backup)
    chaos.restored({plane: (await host.disk.journal.load())[plane]})
    host.start()


async def _touch_everything(operator: Client) -> None:
    for kind in KINDS:
        try:
            found = (await operator.list_plain(kind)).items
        except (ApiError, Unreachable):
            continue
        for item in found:
            await _touch(operator, kind, item["metadata"])


async def _touch(operator: Client, kind: KindInfo[Any], metadata: dict[str, Any]) -> None:
    try:
        ref = Ref(metadata.get("namespace", ""), metadata["name"])
        await operator.patch_plain(kind, ref, _TOUCHED)
    except (ApiError, Unreachable):
        return


def _deletes_new_namespace(chaos: Chaos, name: str) -> CrashPoint:
    """Not a crash: waits for the commit of a namespace, and lets somebody delete it."""
    host, done = chaos.hosts[name], False

    def is_here(batch: Sequence[Entry], durable: bool) -> bool:
        nonlocal done
        for entry in batch if durable and not done else ():
            if _is_new_namespace(entry):
                done = True
                host.spawn(delete(PlaneName(entry.plane), Ref("", entry.key.name)))
        return False

    async def delete(plane: PlaneName, ref: Ref) -> None:
        chaos.tamper(plane, ref)
        chaos.say(f"operator deletes namespace {ref.name} on {plane} in its first moment")
        client = Client(
            HostTransport(host.answer_operator), prefix=path_prefix(plane), token="", agent="test"
        )
        try:
            await client.delete(NAMESPACE, ref)
        except (ApiError, Unreachable):
            return

    return is_here


def _is_new_namespace(entry: Entry) -> TypeGuard[Change]:
    if not isinstance(entry, Change) or entry.key.resource != NAMESPACE.resource:
        return False
    body = entry.body or b'"Terminating"'
    return entry.key.name.startswith("ns-") and b'"Terminating"' not in body


async def _die_with_copy(chaos: Chaos, fault: f.DieWithCopy) -> None:
    host, stored = chaos.hosts[fault.host], asyncio.Event()

    def is_here(batch: Sequence[Entry], durable: bool) -> bool:
        if durable and not stored.is_set() and any(map(_is_new_copy, batch)):
            host.disk.slowness *= _HANGS
            stored.set()
        return False

    host.disk.crash_points.append(is_here)
    async with asyncio.TaskGroup() as group:
        calm = group.create_task(chaos.calm.wait())
        copied = group.create_task(stored.wait())
        await asyncio.wait((calm, copied), return_when=asyncio.FIRST_COMPLETED)
        for task in (calm, copied):
            task.cancel()
    if stored.is_set() and not chaos.calm.is_set():
        await asyncio.sleep(_LAST_WORDS_S)
        chaos.lose(host)


def _is_new_copy(entry: Entry) -> bool:
    """A deployment as the hub made it: the cell has said nothing of it yet."""
    if not isinstance(entry, Change) or entry.key.resource != DEPLOYMENT.resource:
        return False
    return entry.body is not None and b'"observedGeneration"' not in entry.body


async def _burn(chaos: Chaos, fault: f.BurnMachines) -> None:
    provider = chaos.providers[cell_plane(fault.cell)]
    for machine_id in list(provider.machines):
        provider.kill(machine_id)
    provider.lie = "never-there"
    await chaos.last(fault.for_s)
    provider.tell_the_truth()
