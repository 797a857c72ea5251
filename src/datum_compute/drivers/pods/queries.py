"""Queries about the pods of a cell: logs, usage, crash reports and exec sessions.

- ``server`` is always the name of a Server, ``namespace/name``.
- Every query reads from the cluster, so that each manager of the cell can answer it, not only the
  leader.
- The cluster deletes the logs of a pod with the pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

from datum_compute.api.core import ContainerStateTerminated, ContainerStatus, Pod
from datum_compute.api.gateway import ExecRequest, GatewayReason, gateway_not_found
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.quantity import mebibytes, millicores
from datum_compute.drivers.logs import (
    CONCURRENT_LOG_READS_MAX,
    LineCollector,
    LogPage,
    LogPosition,
    LogQuery,
    LogSource,
    PageBuilder,
    WorkloadLog,
    collect_pieces,
    requested_tail,
    source_key,
)
from datum_compute.drivers.pods.pod_spec import SERVER_NAME, TEMPLATE_HASH, server_label
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

# Read from one log for one page. A reader that follows the log continues with the next page.
SCANNED_BYTES_MAX = 8 * 1024 * 1024


class PodQueryApi(Protocol):
    """Requests about what happens in pods, implemented in ``app/pod_client.py``."""

    async def list_pods(self, namespace: str, labels: Mapping[str, str]) -> list[Pod]:
        """Return the pods of the driver with these labels, not from a cache."""
        ...

    async def log(self, pod: Pod, query: Mapping[str, str]) -> bytes:
        """Return lines of a container; none before its first start."""
        ...

    async def metrics(self, pod: Pod) -> JsonObject | None:
        """Return the usage of the containers; None before the first measurement."""
        ...

    async def execute(self, pod: Pod, request: ExecRequest) -> ExecSession: ...


class PodQueries:
    def __init__(self, api: PodQueryApi) -> None:
        self._api = api
        self._log_reads = asyncio.Semaphore(CONCURRENT_LOG_READS_MAX)

    async def log_page(self, server: str, query: LogQuery) -> LogPage:
        found = [
            (pod, container.name)
            for pod in await self._list_pods(server)
            for container in pod.spec.containers
            if not query.container or container.name == query.container
        ]
        builder = PageBuilder(query, len(found))
        for pod, container in found:
            builder.add(await self._read_log(pod, container, query, builder))
        return builder.page()

    async def workload_logs(self, namespace: str, workload: str) -> list[WorkloadLog]:
        """Return nothing: the cluster deletes the logs of a pod with the pod."""
        return []

    async def usage(self, server: str) -> Usage | None:
        """Return the current usage; None without a pod, and before its first measurement."""
        pod = await self._find_pod(server)
        if pod is None:
            return None
        found = await self._api.metrics(pod)
        return pod_usage(pod, found) if found is not None else None

    async def crashes(self, server: str) -> list[CrashReport]:
        """Return the last exit of every container of the existing pods."""
        return [report for pod in await self._list_pods(server) for report in crash_reports_of(pod)]

    async def check_image(
        self, image: str, policy: str, pull_configs: Sequence[bytes]
    ) -> ImageCheck:
        raise gateway_not_found(GatewayReason.IMAGE_CHECK_NOT_SUPPORTED)

    async def execute(self, server: str, request: ExecRequest) -> ExecSession | None:
        pod = await self._find_pod(server)
        if pod is None:
            return None
        names = [container.name for container in pod.spec.containers]
        name = request.container or names[0]
        if name not in names:
            raise NoSuchContainer(f"no container {name}; the containers are: {', '.join(names)}")
        statuses = {status.name: status for status in pod.status.container_statuses}
        if name not in statuses or statuses[name].state.running is None:
            phase = pod.status.phase or "Pending"
            raise NotRunning(f"container {name} does not run: its pod is {phase}")
        complete = ExecRequest(
            command=request.command, container=name, stdin=request.stdin, tty=request.tty
        )
        return await self._api.execute(pod, complete)

    async def driver(self) -> DriverReport:
        """Report the driver. Raises a DriverError if the cluster does not respond."""
        await self._api.list_pods("default", {})
        return DriverReport(driver="pods")

    async def _list_pods(self, server: str) -> list[Pod]:
        """Return the pods of all machines of the Server, oldest first."""
        namespace, _, name = server.partition("/")
        found = await self._api.list_pods(namespace, {SERVER_NAME: server_label(name)})
        pods = [pod for pod in found if machine_id_of(pod).rpartition("/")[0] == server]
        return sorted(pods, key=lambda pod: pod.metadata.creation_timestamp or "")

    async def _find_pod(self, server: str) -> Pod | None:
        """Return the newest pod of the Server that is not being deleted."""
        pods = [pod for pod in await self._list_pods(server) if not pod.is_terminating]
        return pods[-1] if pods else None

    # --- logs

    async def _read_log(
        self, pod: Pod, container: str, query: LogQuery, builder: PageBuilder
    ) -> LogSource:
        key = source_key(machine_id_of(pod), container)
        selection = builder.selection(key)
        parameters = _log_parameters(query, selection.position)
        collector = LineCollector(container, selection, is_framed=False)
        if query.cursor and not query.previous and _restart_count(pod, container):
            # The reader may not have received the last lines of the previous run.
            await self._collect(collector, pod, container, {**parameters, "previous": "true"})
        await self._collect(collector, pod, container, parameters)
        if "tailLines" in parameters and len(collector.seconds) == 1:
            # All lines are of one second: read the whole second to find the position in it.
            since = {"sinceTime": _timestamp(min(collector.seconds))}
            since |= {"previous": "true"} if query.previous else {}
            collector = LineCollector(container, selection, is_framed=False)
            await self._collect(collector, pod, container, since)
        return LogSource(key, collector.lines, collector.position)

    async def _collect(
        self, collector: LineCollector, pod: Pod, container: str, parameters: Mapping[str, str]
    ) -> None:
        if collector.is_full:
            return
        common = {
            "container": container,
            "timestamps": "true",
            "limitBytes": str(SCANNED_BYTES_MAX),
        }
        async with self._log_reads:
            content = await self._api.log(pod, {**common, **parameters})
            # The cluster may have cut the last line; the next page begins with that line.
            if len(content) >= SCANNED_BYTES_MAX:
                content = content[: content.rfind(b"\n") + 1]
            await collect_pieces(collector, content)


def _log_parameters(query: LogQuery, position: LogPosition | None) -> dict[str, str]:
    parameters = {"previous": "true"} if query.previous else {}
    if position is not None and position.second:
        parameters["sinceTime"] = _timestamp(position.second)
    elif query.since_s:
        parameters["sinceTime"] = _timestamp(int(query.since_s))
    elif not query.cursor:
        parameters["tailLines"] = str(requested_tail(query))
    return parameters


def _timestamp(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _restart_count(pod: Pod, container: str) -> int:
    counts = {s.name: s.restart_count for s in pod.status.container_statuses}
    return counts.get(container, 0)


# --- usage and crash reports


def pod_usage(pod: Pod, metrics: JsonObject) -> Usage:
    used = [container.get("usage", {}) for container in metrics.get("containers", [])]
    limits = [c.resources.limits.get("memory", "0") for c in pod.spec.containers]
    return Usage(
        cpu_millicores=sum(millicores(amounts.get("cpu", "0")) for amounts in used),
        memory_mebibytes=sum(mebibytes(amounts.get("memory", "0")) for amounts in used),
        memory_limit_mebibytes=sum(map(mebibytes, limits)) if "0" not in limits else 0,
    )


def crash_reports_of(pod: Pod) -> list[CrashReport]:
    reports = []
    for status in pod.status.container_statuses:
        ended = status.state.terminated or status.last_state.terminated
        if ended is not None and ended.finished_at:
            reports.append(_crash_report(pod, status, ended))
    return sorted(reports, key=lambda report: report.ended_at)


def _crash_report(
    pod: Pod, status: ContainerStatus, ended: ContainerStateTerminated
) -> CrashReport:
    return CrashReport(
        ended_at=ended.finished_at or "",
        message=exit_message(status.name, ended),
        uid=machine_id_of(pod).rpartition("/")[2],
        template_hash=pod.metadata.annotations.get(TEMPLATE_HASH, ""),
        container=status.name,
        started_at=ended.started_at or "",
        exit_code=ended.exit_code,
        out_of_memory=ended.reason == "OOMKilled",
        restarts=status.restart_count,
        lines=ended.message.splitlines(),
    )
