"""Logs across restarts, usage, crash reports and exec sessions of pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from datum_compute.api.core import Pod
from datum_compute.api.errors import NotFound
from datum_compute.api.gateway import ExecRequest
from datum_compute.api.meta.codec import JsonObject, from_json
from datum_compute.drivers.logs import LogQuery
from datum_compute.drivers.pods.pod_spec import (
    MACHINE,
    SERVER_NAME,
    TEMPLATE_HASH,
    pod_body,
    pod_name,
    server_label,
)
from datum_compute.drivers.pods.queries import PodQueries
from datum_compute.drivers.queries import ExecSession, NoSuchContainer, NotRunning
from testkit.conformance.driver import SPEC

ID = "ns/web-0/1"
RUNNING = {"name": "app", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}


def pod(status: JsonObject | None = None, machine_id: str = ID, **metadata: Any) -> Pod:
    body = {
        "metadata": {
            "namespace": "ns",
            "name": pod_name(machine_id),
            "annotations": {MACHINE: machine_id, TEMPLATE_HASH: "h"},
            **metadata,
        },
        "spec": {"containers": [{"name": "app", "resources": {"limits": {"memory": "256Mi"}}}]},
        "status": {"phase": "Running", "containerStatuses": [status or RUNNING]},
    }
    return from_json(body, Pod)


@dataclass
class Cluster:
    """Keeps lines as a kubelet does: of the current and of the previous run."""

    pods: list[Pod] = field(default_factory=lambda: [pod()])
    lines: list[str] = field(default_factory=list)
    previous: list[str] = field(default_factory=list)
    usage: JsonObject | None = None
    requests: list[ExecRequest] = field(default_factory=list)

    async def list_pods(self, namespace: str, labels: Mapping[str, str]) -> list[Pod]:
        return self.pods

    async def log(self, pod: Pod, query: Mapping[str, str]) -> bytes:
        lines = self.previous if query.get("previous") else self.lines
        since = query.get("sinceTime", "")
        lines = [line for line in lines if line[:19] >= since[:19]]
        tail = int(query.get("tailLines", len(lines)))
        return "".join(f"{line}\n" for line in lines[max(0, len(lines) - tail) :]).encode()

    async def metrics(self, pod: Pod) -> JsonObject | None:
        return self.usage

    async def execute(self, pod: Pod, query: ExecRequest) -> ExecSession:
        self.requests.append(query)
        raise NotImplementedError


def log_line(second: int, text: str, nanoseconds: int = 0) -> str:
    return f"2026-01-01T00:00:{second:02}.{nanoseconds:09}Z {text}"


async def read(cluster: Cluster, query: LogQuery | None = None) -> tuple[list[str], LogQuery]:
    """Return the lines, and the query for the lines after them."""
    page = await PodQueries(cluster).log_page("ns/web-0", query or LogQuery())
    return [line.text for line in page.lines], LogQuery(cursor=page.cursor)


async def test_a_reader_gets_every_line_once() -> None:
    cluster = Cluster(lines=[log_line(1, "a"), log_line(2, "b", 5)])
    found, more = await read(cluster)
    assert found == ["a", "b"]
    cluster.lines += [log_line(2, "c", 9), log_line(3, "d")]
    found, more = await read(cluster, more)
    assert found == ["c", "d"]
    assert (await read(cluster, more))[0] == []


async def test_a_short_tail_of_one_busy_second_skips_no_line() -> None:
    cluster = Cluster(lines=[log_line(1, text, n) for n, text in enumerate("abcd")])
    found, more = await read(cluster, LogQuery(tail=2))
    assert found == ["c", "d"]
    cluster.lines.append(log_line(1, "e", 9))
    assert (await read(cluster, more))[0] == ["e"]


async def test_lines_from_before_a_restart_are_not_lost() -> None:
    cluster = Cluster(lines=[log_line(1, "a")])
    _, more = await read(cluster)
    cluster.pods = [pod({**RUNNING, "restartCount": 1})]
    cluster.previous, cluster.lines = (
        [log_line(1, "a"), log_line(2, "last line")],
        [log_line(3, "again")],
    )
    assert (await read(cluster, more))[0] == ["last line", "again"]
    previous = LogQuery(previous=True)
    assert (await read(cluster, previous))[0] == ["a", "last line"]


async def test_logs_of_other_servers_are_left_out() -> None:
    cluster = Cluster(pods=[pod(machine_id="ns/web-00/1")], lines=[log_line(1, "a")])
    page = await PodQueries(cluster).log_page("ns/web-0", LogQuery())
    assert (page.lines, page.cursor) == ([], {})


async def test_usage_includes_all_containers_and_is_none_before_the_first_measurement() -> None:
    cluster = Cluster()
    assert await PodQueries(cluster).usage("ns/web-0") is None
    cluster.usage = {"containers": [{"usage": {"cpu": "1500u", "memory": "2000Ki"}}]}
    usage = await PodQueries(cluster).usage("ns/web-0")
    assert usage is not None
    found = (usage.cpu_millicores, usage.memory_mebibytes, usage.memory_limit_mebibytes)
    assert found == (2, 2, 256)


async def test_the_last_exit_of_a_container_is_reported() -> None:
    ended = {
        "exitCode": 137,
        "reason": "OOMKilled",
        "message": "first\nlast",
        "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:00:09Z",
    }
    status = {**RUNNING, "restartCount": 2, "lastState": {"terminated": ended}}
    (report,) = await PodQueries(Cluster(pods=[pod(status)])).crashes("ns/web-0")
    assert (report.exit_code, report.out_of_memory, report.restarts) == (137, True, 2)
    assert report.template_hash == "h"
    assert (report.ended_at, report.lines) == ("2026-01-01T00:00:09Z", ["first", "last"])


@pytest.mark.parametrize(
    ("cluster", "container", "error"),
    [
        (Cluster(), "other", NoSuchContainer),
        (Cluster(pods=[pod({"name": "app", "state": {"waiting": {}}})]), "", NotRunning),
    ],
)
async def test_no_command_is_run_without_a_running_container(
    cluster: Cluster, container: str, error: type[Exception]
) -> None:
    query = ExecRequest(command=["sh"], container=container)
    with pytest.raises(error):
        await PodQueries(cluster).execute("ns/web-0", query)
    assert cluster.requests == []


async def test_no_command_is_run_in_a_terminating_pod() -> None:
    cluster = Cluster(pods=[pod(deletionTimestamp="2026-01-01T00:00:00Z")])
    assert await PodQueries(cluster).execute("ns/web-0", ExecRequest(command=["sh"])) is None


async def test_images_cannot_be_checked() -> None:
    with pytest.raises(NotFound):
        await PodQueries(Cluster()).check_image("web:1", "", ())


def test_the_label_of_a_server_is_that_of_its_pod() -> None:
    name = "a" * 62 + "-0"
    labels = pod_body(f"ns/{name}/1", SPEC)["metadata"]["labels"]
    assert labels[SERVER_NAME] == server_label(name)
