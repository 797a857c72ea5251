"""An in-memory pod API with the kubelet of ``kubelet.py``, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from datum_compute.api.core import Pod
from datum_compute.api.meta.codec import JsonObject, deep_copy, from_json
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.drivers.driver import TransientError
from datum_compute.drivers.pods.driver import PodEvent
from testkit.fakes.kubelet import pod_status

_TICK_S = 0.05


class MemoryPods:
    """All pods of a cluster. While ``away`` is set, every call fails. ``run`` is the kubelet."""

    def __init__(self, now: Callable[[], float], *, stop_s: float = 0.1) -> None:
        self._now = now
        self._stop_s = stop_s
        self._pods: dict[tuple[str, str], JsonObject] = {}
        self._gone_from_s: dict[tuple[str, str], float] = {}
        self._numbers: dict[str, int] = {}
        self._version = 0
        self._log: list[tuple[int, PodEvent]] = []
        self._news = asyncio.Event()
        self._lost_from = 0  # how often all open watches were ended
        self.away = False
        self.created = 0

    async def create(self, body: JsonObject) -> Pod | None:
        self._answer()
        key = (body["metadata"]["namespace"], body["metadata"]["name"])
        if key in self._pods:
            return None
        self.created += 1
        uid = f"pod-{self.created}"
        self._numbers[uid] = self.created
        metadata = {"uid": uid, "creationTimestamp": timestamp(self._now())}
        made = {**deep_copy(body), "metadata": {**body["metadata"], **metadata}}
        return self._put(key, {**made, "status": {"phase": "Pending"}})

    async def get(self, namespace: str, name: str) -> Pod | None:
        self._answer()
        found = self._pods.get((namespace, name))
        return from_json(found, Pod) if found is not None else None

    async def delete(self, pod: Pod, *, at_once: bool = False) -> None:
        self._answer()
        key = (pod.metadata.namespace, pod.metadata.name)
        found = self._pods.get(key)
        if found is None or found["metadata"]["uid"] != pod.metadata.uid:
            return
        if at_once:
            self._remove(key)
        elif "deletionTimestamp" not in found["metadata"]:
            metadata = {**found["metadata"], "deletionTimestamp": timestamp(self._now())}
            self._gone_from_s[key] = self._now() + self._stop_s
            self._put(key, {**found, "metadata": metadata})

    async def list(self) -> tuple[list[Pod], str]:
        self._answer()
        return [from_json(pod, Pod) for pod in self._pods.values()], str(self._version)

    async def watch(self, since: str) -> AsyncGenerator[PodEvent, None]:
        seen, opened = int(since), self._lost_from
        while True:
            for version, event in [entry for entry in self._log if entry[0] > seen]:
                self._answer()
                seen = version
                yield event
            self._news.clear()
            await self._news.wait()
            if self._lost_from > opened:
                raise TransientError("the connection was lost")

    def lose_watches(self) -> None:
        """End all open watches."""
        self._lost_from += 1
        self._news.set()

    async def run(self) -> None:
        """Update the status of every pod periodically."""
        while True:
            for key, pod in list(self._pods.items()):
                if self._gone_from_s.get(key, self._now() + 1) <= self._now():
                    self._remove(key)
                    continue
                status = pod_status(pod, self._now(), self._numbers[pod["metadata"]["uid"]])
                if status != pod["status"] and "deletionTimestamp" not in pod["metadata"]:
                    self._put(key, {**pod, "status": status})
            await asyncio.sleep(_TICK_S)

    def _put(self, key: tuple[str, str], pod: JsonObject) -> Pod:
        self._version += 1
        metadata = {**pod["metadata"], "resourceVersion": str(self._version)}
        self._pods[key] = {**pod, "metadata": metadata}
        held = from_json(self._pods[key], Pod)
        self._tell(PodEvent(held))
        return held

    def _remove(self, key: tuple[str, str]) -> None:
        gone = self._pods.pop(key)
        self._gone_from_s.pop(key, None)
        self._version += 1
        self._tell(PodEvent(from_json(gone, Pod), is_deleted=True))

    def _tell(self, event: PodEvent) -> None:
        self._log.append((self._version, event))
        self._news.set()

    def _answer(self) -> None:
        if self.away:
            raise TransientError("the cluster does not respond")
