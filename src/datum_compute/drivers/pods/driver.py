"""The pods driver: creates and removes pods, and watches them.

- ``run`` must run: it lists and watches the pods of the driver and keeps a cache of them.
- A pod that is not in the cache is read from the cluster: a machine is absent only if the cluster
  confirms that. While the watch is disconnected, every pod is read.
- If the cluster does not respond to a read, the observation is NOT_OBSERVED, and after
  OBSERVATION_DEADLINE_S the phase is Unknown.
- `PodApi` reports failures as TransientError, and what the cluster will never accept as
  PermanentError. ``app/pod_client.py`` implements it on a client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from msgspec.structs import replace

from datum_compute.api.compute.scale_to_zero import SleepMode
from datum_compute.api.compute.server import ServerSpec
from datum_compute.api.core import Pod
from datum_compute.api.meta.codec import JsonObject
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

# Delay between attempts while the cluster does not respond.
RETRY_S = 1.0
# A pod that the cluster ended is replaced only when it is this old. This limits the rate if the
# cluster ends every new pod immediately.
REPLACE_AFTER_S = 10.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PodEvent:
    pod: Pod
    is_deleted: bool = False


class PodApi(Protocol):
    """Requests about the pods of the driver."""

    async def create(self, body: JsonObject) -> Pod | None:
        """Return the new pod; None if a pod of that name exists."""
        ...

    async def get(self, namespace: str, name: str) -> Pod | None: ...

    async def delete(self, pod: Pod, *, at_once: bool = False) -> None:
        """Request the deletion of exactly this pod, which may be gone already.

        ``at_once`` skips the grace period; use it only for a pod that has ended.
        """
        ...

    async def list(self) -> tuple[list[Pod], str]:
        """Return all pods of the driver, and the resource version of the list."""
        ...

    def watch(self, since: str) -> AsyncGenerator[PodEvent, None]:
        """Yield events after that resource version, for a while.

        Raises TransientError when the version is too old.
        """
        ...


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
        self._pending_changes: dict[str, None] = {}
        self._has_changes = asyncio.Event()

    # --- the protocol

    async def start(self, machine_id: str, spec: ServerSpec, data: MachineData = NO_DATA) -> None:
        """Create the pod. ``data`` is not used: the kubelet reads what the pod refers to."""
        if machine_id in self._pods:
            return
        created = await self._api.create(pod_body(machine_id, spec))
        if created is not None:
            self._cache_pod(machine_id, created)

    async def remove(self, machine_id: str) -> None:
        pod = await self._get_pod(machine_id)
        if pod is not None and not pod.is_terminating:
            await self._api.delete(pod)

    async def observe(self, machine_id: str) -> Observation:
        try:
            pod = await self._get_pod(machine_id)
        except DriverError as error:
            return missing_observation(self._record_failure(), f"cannot read the pod: {error}")
        if pod is None:
            return None
        if has_ended(pod) and not pod.is_terminating and self._age_s(pod) >= REPLACE_AFTER_S:
            await self._delete_ended(pod)
        spec_fingerprint = pod.metadata.annotations.get(SPEC_FINGERPRINT, "")
        return replace(pod_state(pod, self._unix_s()), spec_fingerprint=spec_fingerprint)

    async def _delete_ended(self, pod: Pod) -> None:
        """Delete the pod to make room for a new one; the next observation retries a failure."""
        try:
            await self._api.delete(pod, at_once=True)
        except DriverError as error:
            _log.warning("cannot delete pod %s: %s", pod.metadata.name, error)

    async def machines(self, name: str = "") -> list[str]:
        """Read the machines from the cluster, not from the cache."""
        pods, _ = await self._api.list()
        ids = {machine_id_of(pod) for pod in pods}
        return sorted(
            machine_id for machine_id in ids if machine_id and machine_id.startswith(name)
        )

    async def sleep(self, machine_id: str, mode: SleepMode) -> None:
        """Do nothing: Kubernetes cannot pause a pod, so machines stay awake."""

    async def wake(self, machine_id: str) -> float:
        return 0.0

    async def suspend(self, machine_id: str) -> None:
        """Delete the pod: Kubernetes cannot stop a pod and keep it.

        The Server stays, and with it the name of the pod, its volumes and its labels. The address
        of the next pod is chosen by the cluster.
        """
        await self.remove(machine_id)

    async def resume(self, machine_id: str) -> None:
        """Do nothing: a machine without a pod is started like a new one."""

    async def changes(self) -> AsyncIterator[str]:
        while True:
            while self._pending_changes:
                machine_id = next(iter(self._pending_changes))
                del self._pending_changes[machine_id]
                yield machine_id
            self._has_changes.clear()
            await self._has_changes.wait()

    # --- the cache

    async def run(self) -> None:
        """List and watch the pods until cancelled."""
        while True:
            try:
                await self._list_and_watch()
            except DriverError as error:
                _log.warning("cannot watch the pods: %s", error)
                unanswered_for_s = self._record_failure()
                if unanswered_for_s >= OBSERVATION_DEADLINE_S and not self._is_loss_announced:
                    self._is_loss_announced = True
                    self._announce_all()
            await asyncio.sleep(RETRY_S)

    async def _list_and_watch(self) -> None:
        pods, version = await self._api.list()
        self._unanswered_since_s = None
        listed = {machine_id_of(pod): pod for pod in pods if machine_id_of(pod)}
        for machine_id in [cached for cached in self._pods if cached not in listed]:
            self._drop_pod(machine_id)
        for machine_id, pod in listed.items():
            self._cache_pod(machine_id, pod)
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
                    self._drop_pod(machine_id)
                elif machine_id:
                    self._cache_pod(machine_id, event.pod)

    async def _get_pod(self, machine_id: str) -> Pod | None:
        """Return the pod from the cache if it is current, else from the cluster."""
        cached = self._pods.get(machine_id)
        if cached is not None and self._is_watching:
            return cached
        found = await self._api.get(machine_id.split("/")[0], pod_name(machine_id))
        self._unanswered_since_s = None
        if found is None or machine_id_of(found) != machine_id:
            self._drop_pod(machine_id)
            return None
        self._cache_pod(machine_id, found)
        return found

    def _record_failure(self) -> float:
        """Record that a request failed, and return for how long requests have failed."""
        now_s = self._elapsed_s()
        if self._unanswered_since_s is None:
            self._unanswered_since_s = now_s
        return now_s - self._unanswered_since_s

    def _cache_pod(self, machine_id: str, pod: Pod) -> None:
        """Cache the pod, unless the cached version is newer."""
        cached = self._pods.get(machine_id)
        if cached == pod or (
            cached is not None
            and cached.metadata.uid == pod.metadata.uid
            and cached.version > pod.version
        ):
            return
        self._pods[machine_id] = pod
        self._announce(machine_id)

    def _drop_pod(self, machine_id: str) -> None:
        if self._pods.pop(machine_id, None) is not None:
            self._announce(machine_id)

    def _announce_all(self) -> None:
        for machine_id in self._pods:
            self._announce(machine_id)

    def _announce(self, machine_id: str) -> None:
        self._pending_changes[machine_id] = None
        self._has_changes.set()

    def _age_s(self, pod: Pod) -> float:
        created = pod.metadata.creation_timestamp
        return self._unix_s() - datetime.fromisoformat(created).timestamp() if created else 0.0
