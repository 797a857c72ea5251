"""What people ask of the pods of a cell: what they say and use, how they ended, and to run
something in them. ``server`` is always a Server's name, ``namespace/name``.

All of it is asked of the cluster, so that any manager of the cell can answer, whoever leads. Lines
of a pod go with the pod: the cluster keeps none of those that are gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

from datum_compute.api.codec import JsonObject
from datum_compute.api.errors import NotFound
from datum_compute.api.gatewaypaths import NO_REGISTRY
from datum_compute.api.pod import ContainerStatus, Pod, Terminated
from datum_compute.api.quantities import mebibytes, millicores
from datum_compute.api.remotecommand import ExecWish
from datum_compute.drivers.logs import (
    CONCURRENT_LOG_READS_MAX,
    LineCollector,
    LogPage,
    LogPosition,
    LogQuery,
    LogSource,
    PageBuilder,
    collect_pieces,
    requested_tail,
    source_key,
)
from datum_compute.drivers.pods.pod_spec import SERVER_NAME, server_label
from datum_compute.drivers.pods.status import exit_message, machine_id_of
from datum_compute.drivers.queries import (
    CrashReport,
    DriverReport,
    ExecSession,
    ImageCheck,
    NoSuchContainer,
    NotRunning,
    Usage,
)


class PodQueryApi(Protocol):
    """What ``inside.py`` asks: not about pods, but what happens in them."""

    async def list_pods(self, namespace: str, labels: Mapping[str, str]) -> list[Pod]:
        """Pods of the driver with these labels, as the cluster has them now."""
        ...

    async def log(self, pod: Pod, query: Mapping[str, str]) -> bytes:
        """Lines of a container, as the cluster gives them; none before its first start."""
        ...

    async def metrics(self, pod: Pod) -> JsonObject | None:
        """What the containers of a pod use; None while nobody has measured it."""
        ...

    async def execute(self, pod: Pod, wish: ExecWish) -> ExecSession: ...


# Of one container at once; what comes after it is on the next page.
BYTES_MAX = 8 * 1024 * 1024


class PodQueries:
    def __init__(self, api: PodQueryApi) -> None:
        self._api = api
        self._log_reads = asyncio.Semaphore(CONCURRENT_LOG_READS_MAX)

    async def log_page(self, server: str, wish: LogQuery) -> LogPage:
        found = [
            (pod, container.name)
            for pod in await self._pods(server)
            for container in pod.spec.containers
            if not wish.container or container.name == wish.container
        ]
        builder = PageBuilder(wish, len(found))
        for pod, container in found:
            builder.add(await self._source(pod, container, wish, builder))
        return builder.page()

    async def usage(self, server: str) -> Usage | None:
        """What the pod uses now; nothing while it is new and nobody has measured it."""
        pod = await self._wanted(server)
        if pod is None:
            return None
        found = await self._api.metrics(pod)
        return pod_usage(pod, found) if found is not None else None

    async def crashes(self, server: str) -> list[CrashReport]:
        """The last end of every container, as long as its pod is there."""
        return [card for pod in await self._pods(server) for card in crash_reports_of(pod)]

    async def check_image(
        self, image: str, policy: str, pull_configs: Sequence[bytes]
    ) -> ImageCheck:
        raise NotFound(NO_REGISTRY)

    async def execute(self, server: str, wish: ExecWish) -> ExecSession | None:
        pod = await self._wanted(server)
        if pod is None:
            return None
        names = [container.name for container in pod.spec.containers]
        name = wish.container or names[0]
        if name not in names:
            raise NoSuchContainer(f"it has no container {name}; there are: {', '.join(names)}")
        statuses = {status.name: status for status in pod.status.container_statuses}
        if name not in statuses or statuses[name].state.running is None:
            phase = pod.status.phase or "Pending"
            raise NotRunning(f"container {name} does not run: its pod is {phase}")
        chosen = ExecWish(command=wish.command, container=name, stdin=wish.stdin, tty=wish.tty)
        return await self._api.execute(pod, chosen)

    async def driver(self) -> DriverReport:
        """It is asked for pods, so that a cluster which does not answer is not called well."""
        await self._api.list_pods("default", {})
        return DriverReport(driver="pods")

    async def _pods(self, server: str) -> list[Pod]:
        """Of all machines of that name, the oldest first."""
        namespace, _, name = server.partition("/")
        found = await self._api.list_pods(namespace, {SERVER_NAME: server_label(name)})
        pods = [pod for pod in found if machine_id_of(pod).rpartition("/")[0] == server]
        return sorted(pods, key=lambda pod: pod.metadata.creation_timestamp or "")

    async def _wanted(self, server: str) -> Pod | None:
        """The one that is to be there."""
        pods = [pod for pod in await self._pods(server) if not pod.is_terminating]
        return pods[-1] if pods else None

    # --- lines

    async def _source(
        self, pod: Pod, container: str, wish: LogQuery, builder: PageBuilder
    ) -> LogSource:
        key = source_key(machine_id_of(pod), container)
        selection = builder.selection(key)
        query = _query(wish, selection.position)
        collector = LineCollector(container, selection, is_framed=False)
        if wish.cursor and not wish.previous and _restarts(pod, container):
            # The last lines of the previous run.
            await self._collect(collector, pod, container, {**query, "previous": "true"})
        await self._collect(collector, pod, container, query)
        if "tailLines" in query and len(collector.seconds) == 1:
            # All lines are of one second: read the whole second to find the place in it.
            since = {"sinceTime": _moment(min(collector.seconds))}
            since |= {"previous": "true"} if wish.previous else {}
            collector = LineCollector(container, selection, is_framed=False)
            await self._collect(collector, pod, container, since)
        return LogSource(key, collector.lines, collector.position)

    async def _collect(
        self, collector: LineCollector, pod: Pod, container: str, query: Mapping[str, str]
    ) -> None:
        if collector.is_full:
            return
        usual = {"container": container, "timestamps": "true", "limitBytes": str(BYTES_MAX)}
        async with self._log_reads:
            content = await self._api.log(pod, {**usual, **query})
            # The cluster may cut a line; the next page begins with that line.
            whole = content if len(content) < BYTES_MAX else content[: content.rfind(b"\n") + 1]
            await collect_pieces(collector, whole)


def _query(wish: LogQuery, place: LogPosition | None) -> dict[str, str]:
    query = {"previous": "true"} if wish.previous else {}
    if place is not None and place.second:
        query["sinceTime"] = _moment(place.second)
    elif wish.since_s:
        query["sinceTime"] = _moment(int(wish.since_s))
    elif not wish.cursor:
        query["tailLines"] = str(requested_tail(wish))
    return query


def _moment(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _restarts(pod: Pod, container: str) -> int:
    counts = {s.name: s.restart_count for s in pod.status.container_statuses}
    return counts.get(container, 0)


# --- what they use, and how they ended


def pod_usage(pod: Pod, metrics: JsonObject) -> Usage:
    used = [container.get("usage", {}) for container in metrics.get("containers", [])]
    limits = [c.resources.limits.get("memory", "0") for c in pod.spec.containers]
    return Usage(
        cpu_millicores=sum(millicores(amounts.get("cpu", "0")) for amounts in used),
        memory_mebibytes=sum(mebibytes(amounts.get("memory", "0")) for amounts in used),
        memory_limit_mebibytes=sum(map(mebibytes, limits)) if "0" not in limits else 0,
    )


def crash_reports_of(pod: Pod) -> list[CrashReport]:
    cards = []
    for status in pod.status.container_statuses:
        ended = status.state.terminated or status.last_state.terminated
        if ended is not None and ended.finished_at:
            cards.append(_crash_report(pod, status, ended))
    return sorted(cards, key=lambda card: card.ended_at)


def _crash_report(pod: Pod, status: ContainerStatus, ended: Terminated) -> CrashReport:
    return CrashReport(
        ended_at=ended.finished_at or "",
        message=exit_message(status.name, ended),
        uid=machine_id_of(pod).rpartition("/")[2],
        container=status.name,
        started_at=ended.started_at or "",
        exit_code=ended.exit_code,
        out_of_memory=ended.reason == "OOMKilled",
        restarts=status.restart_count,
        lines=ended.message.splitlines(),
    )
