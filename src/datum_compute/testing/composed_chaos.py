"""Makes the faults of ``composed_faults.py`` happen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.kinds import KINDS
from datum_compute.api.meta import KindInfo, Ref
from datum_compute.api.plane import PlaneName, cell_plane
from datum_compute.client.client import Client
from datum_compute.testing import composed_faults as f

if TYPE_CHECKING:
    from datum_compute.testing.chaos import Chaos

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
        case f.RestoreHost():
            await _restore(chaos, fault)
        case f.TouchEverything():
            await _touch_everything(chaos.operator(PlaneName(fault.plane)))
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


async def _restore(chaos: Chaos, fault: f.RestoreHost) -> None:
    host = chaos.hosts[fault.host]
    backup = host.disk.journal.copy()
    await chaos.last(fault.for_s)
    if host.name in chaos.lost:
        return
    host.crash(down_s=float("inf"))
    backup.continue_after(host.disk.journal)
    host.disk.journal = backup
    chaos.restored(await backup.load())
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


async def _burn(chaos: Chaos, fault: f.BurnMachines) -> None:
    provider = chaos.providers[cell_plane(fault.cell)]
    provider.machines.clear()
    provider.lie = "never-there"
    await chaos.last(fault.for_s)
    provider.tell_the_truth()
