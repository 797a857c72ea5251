"""The driver: it creates and removes pods; a watch keeps a cache of them.

``run`` must run for announcements to come. A pod that is not in the cache is read from the cluster:
a machine is absent only when the cluster confirms that there is no such pod. While the watch is
lost every pod is read. If the cluster does not answer that either, the machine is NOT_OBSERVED, and
after OBSERVATION_DEADLINE_S its phase is Unknown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from datum_compute.api.codec import JsonObject
from datum_compute.api.pod import Pod
from datum_compute.api.scaletozero import SleepMode
from datum_compute.api.server import ServerSpec
from datum_compute.drivers.driver import (
    NO_DATA,
    OBSERVATION_DEADLINE_S,
    DriverError,
    MachineData,
    Observation,
    missing_observation,
)
from datum_compute.drivers.pods.pod_spec import SPEC_FINGERPRINT, pod_body, pod_name
from datum_compute.drivers.pods.status import has_ended, machine_id_of, pod_state


@dataclass(frozen=True, slots=True)
class PodEvent:
    pod: Pod
    is_deleted: bool = False


class PodApi(Protocol):
    async def create(self, body: JsonObject) -> Pod | None:
        """The new pod; None if there is one of that name already."""
        ...

    async def get(self, namespace: str, name: str) -> Pod | None: ...

    async def delete(self, pod: Pod, *, at_once: bool = False) -> None:
        """Ask for the removal of that very pod; it may be gone already. At once only what is known
        to have ended: nobody waits for it to do so."""
        ...

    async def list(self) -> tuple[list[Pod], str]:
        """All pods of the driver, and the version they are of."""
        ...

    def watch(self, since: str) -> AsyncGenerator[PodEvent, None]:
        """What happens to pods of the driver after that version, for a while; raises TransientError
        when it is too long ago."""
        ...


# Between tries while the cluster does not answer.
AWAY_S = 1.0
# A pod that the cluster ended makes room for the next one only then: a cluster that ends it again
# and again is not asked as fast as it can answer.
REPLACED_S = 10.0

_log = logging.getLogger(__name__)


class PodsDriver:
    is_simulated = False

    def __init__(
        self, api: PodApi, *, unix_s: Callable[[], float], elapsed_s: Callable[[], float]
    ) -> None:
        self._api = api
        self._unix_s = unix_s
        self._elapsed_s = elapsed_s
        # Whether the cache is current: it was filled by a list, and a watch keeps it up to date.
        self._is_watching = False
        # Since when requests to the cluster fail; None if the last one succeeded.
        self._unanswered_since_s: float | None = None
        self._is_loss_announced = False
        self._pods: dict[str, Pod] = {}  # by machine
        self._news: dict[str, None] = {}
        self._has_news = asyncio.Event()

    # --- what the cell asks

    async def start(self, machine_id: str, spec: ServerSpec, data: MachineData = NO_DATA) -> None:
        """``data`` is not needed: the kubelet reads what the pod refers to."""
        if machine_id in self._pods:
            return
        made = await self._api.create(pod_body(machine_id, spec))
        if made is not None:
            self._know(machine_id, made)

    async def remove(self, machine_id: str) -> None:
        pod = await self._look(machine_id)
        if pod is not None and not pod.is_terminating:
            await self._api.delete(pod)

    async def observe(self, machine_id: str) -> Observation:
        try:
            pod = await self._look(machine_id)
        except DriverError as error:
            return missing_observation(self._note_failure(), f"cannot read the pod: {error}")
        if pod is None:
            return None
        if has_ended(pod) and not pod.is_terminating and self._age_s(pod) >= REPLACED_S:
            await self._replace_dead(pod)
        spec_fingerprint = pod.metadata.annotations.get(SPEC_FINGERPRINT, "")
        return replace(pod_state(pod, self._unix_s()), spec_fingerprint=spec_fingerprint)

    async def _replace_dead(self, pod: Pod) -> None:
        """Delete the pod to make room for a new one; the next observation retries a failure."""
        try:
            await self._api.delete(pod, at_once=True)
        except DriverError as error:
            _log.warning("cannot delete pod %s: %s", pod.metadata.name, error)

    async def machines(self, name: str = "") -> list[str]:
        """As the cluster has them now."""
        pods, _ = await self._api.list()
        found = {machine_id_of(pod) for pod in pods}
        return sorted(found_id for found_id in found if found_id and found_id.startswith(name))

    async def sleep(self, machine_id: str, mode: SleepMode) -> None:
        """Clusters put no pod to sleep: what has nothing to do stays awake."""

    async def wake(self, machine_id: str) -> float:
        return 0.0

    async def changes(self) -> AsyncIterator[str]:
        while True:
            while self._news:
                machine_id = next(iter(self._news))
                del self._news[machine_id]
                yield machine_id
            self._has_news.clear()
            await self._has_news.wait()

    # --- what the cluster says

    async def run(self) -> None:
        """Follow the pods until cancelled."""
        while True:
            try:
                await self._follow()
            except DriverError as error:
                _log.warning("cannot watch the pods: %s", error)
                unanswered_for_s = self._note_failure()
                if unanswered_for_s >= OBSERVATION_DEADLINE_S and not self._is_loss_announced:
                    self._is_loss_announced = True
                    self._announce_all()
            await asyncio.sleep(AWAY_S)

    async def _follow(self) -> None:
        pods, version = await self._api.list()
        self._unanswered_since_s = None
        listed = {machine_id_of(pod): pod for pod in pods if machine_id_of(pod)}
        for machine_id in [known for known in self._pods if known not in listed]:
            self._forget(machine_id)
        for machine_id, pod in listed.items():
            self._know(machine_id, pod)
        if self._is_loss_announced:
            self._is_loss_announced = False
            self._announce_all()
        self._is_watching = True
        try:
            await self._watch(version)
        finally:
            self._is_watching = False

    async def _watch(self, version: str) -> None:
        async with aclosing(self._api.watch(version)) as events:
            async for event in events:
                machine_id = machine_id_of(event.pod)
                if machine_id and event.is_deleted:
                    self._forget(machine_id)
                elif machine_id:
                    self._know(machine_id, event.pod)

    async def _look(self, machine_id: str) -> Pod | None:
        known = self._pods.get(machine_id)
        if known is not None and self._is_watching:
            return known
        found = await self._api.get(machine_id.split("/")[0], pod_name(machine_id))
        self._unanswered_since_s = None
        if found is None or machine_id_of(found) != machine_id:
            self._forget(machine_id)
            return None
        self._know(machine_id, found)
        return found

    def _note_failure(self) -> float:
        """Record that a request failed, and return for how long requests have failed."""
        now_s = self._elapsed_s()
        if self._unanswered_since_s is None:
            self._unanswered_since_s = now_s
        return now_s - self._unanswered_since_s

    def _announce_all(self) -> None:
        for machine_id in self._pods:
            self._tell(machine_id)

    def _know(self, machine_id: str, pod: Pod) -> None:
        known = self._pods.get(machine_id)
        if known == pod or (
            known is not None
            and known.metadata.uid == pod.metadata.uid
            and known.version > pod.version
        ):
            return
        self._pods[machine_id] = pod
        self._tell(machine_id)

    def _forget(self, machine_id: str) -> None:
        if self._pods.pop(machine_id, None) is not None:
            self._tell(machine_id)

    def _tell(self, machine_id: str) -> None:
        self._news[machine_id] = None
        self._has_news.set()

    def _age_s(self, pod: Pod) -> float:
        made = pod.metadata.creation_timestamp
        return self._unix_s() - datetime.fromisoformat(made).timestamp() if made else 0.0
