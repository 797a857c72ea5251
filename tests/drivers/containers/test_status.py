"""What engines and registries say, read."""

from __future__ import annotations

import base64
import json
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api.containeroptions import Probe
from datum_compute.api.reasons import Reason
from datum_compute.api.timestamps import unix_time
from datum_compute.drivers.containers.container_spec import ContainerPlan, MachinePlan
from datum_compute.drivers.containers.images import (
    default_pull_policy,
    find_credentials,
    parse_image,
    registry_host,
    split_reference,
)
from datum_compute.drivers.containers.inspection import InspectedContainer, parse_container
from datum_compute.drivers.containers.machine import (
    Machine,
    MachineRecord,
    MachineSnapshot,
    SetupProblem,
    record_sleep,
)
from datum_compute.drivers.containers.operations import ContainerOperations
from datum_compute.drivers.containers.probes import ProbeCounter
from datum_compute.drivers.containers.status import ReadinessResults, snapshot_state
from datum_compute.drivers.containers.usage import compute_usage, parse_sample, read_usage
from datum_compute.drivers.logs import FrameDecoder, LastLines
from datum_compute.drivers.queries import Usage

PLAN = MachinePlan(
    containers=[ContainerPlan(name="app", image="web:1", memory_mebibytes=64, digest="sha256:d")],
    addresses=["10.0.0.2"],
)
UP = InspectedContainer("app", "id", "running", started_at="2026-01-01T00:00:00Z", started_s=100.0)
ENDED = InspectedContainer("app", "id", "exited", 137, finished_s=200.0)


@pytest.mark.parametrize(
    ("image", "name", "tag", "policy", "registry"),
    [
        ("web", "web", "latest", "Always", "docker.io"),
        ("web:1", "web", "1", "IfNotPresent", "docker.io"),
        ("team/web:latest", "team/web", "latest", "Always", "docker.io"),
        ("host:5000/web", "host:5000/web", "latest", "Always", "host:5000"),
        ("host:5000/a/web:2", "host:5000/a/web", "2", "IfNotPresent", "host:5000"),
        ("localhost/web:1", "localhost/web", "1", "IfNotPresent", "localhost"),
        ("r.io/web:1@sha256:ab", "r.io/web", "sha256:ab", "IfNotPresent", "r.io"),
    ],
)
def test_images_are_taken_apart(
    image: str, name: str, tag: str, policy: str, registry: str
) -> None:
    assert split_reference(image) == (name, tag)
    assert default_pull_policy(image) == policy
    assert registry_host(image) == registry


def test_credentials_are_those_of_the_registry_in_the_order_of_the_secrets() -> None:
    first = json.dumps({"auths": {"r.io": {"username": "a", "password": "b"}, "x": {}}}).encode()
    packed = base64.b64encode(b"c:d:e").decode()
    second = json.dumps({"auths": {"https://r.io/v1/": {"auth": packed}}}).encode()
    found = list(find_credentials("r.io/web:1", [b"no json", first, second]))
    assert [(f["username"], f["password"]) for f in found] == [("a", "b"), ("c", "d:e")]
    assert list(find_credentials("other.io/web:1", [first, second])) == []


def test_a_digest_is_that_of_the_repository_that_was_asked() -> None:
    found = {"Id": "sha256:id", "RepoDigests": ["x/web@sha256:1", "r.io/web@sha256:2"]}
    assert parse_image("r.io/web:1", found).digest == "sha256:2"
    assert parse_image("local:1", {"Id": "sha256:id"}).digest == "sha256:id"


@given(st.lists(st.tuples(st.integers(1, 2), st.binary(max_size=40)), max_size=8), st.data())
def test_frames_are_put_together_however_they_are_cut(
    frames: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    whole = b"".join(bytes([s, 0, 0, 0]) + len(b).to_bytes(4) + b for s, b in frames)
    decoder, found = FrameDecoder(), [b""]
    streams = []
    while whole:
        cut = data.draw(st.integers(1, len(whole)))
        for stream, part, is_end in decoder.feed(whole[:cut]):
            found[-1] += part
            if is_end:
                streams.append(stream)
                found.append(b"")
        whole = whole[cut:]
    assert list(zip(streams, found, strict=False)) == [frame for frame in frames if frame[1]]


def test_last_lines_are_those_of_both_streams() -> None:
    framed = b"".join(
        bytes([stream, 0, 0, 0]) + len(text).to_bytes(4) + text
        for stream, text in ((1, b"one\ntwo\n"), (2, b"three\n"))
    )
    last = LastLines(2)
    for start in range(len(framed)):
        last.feed(framed[start : start + 1])
    assert last.texts() == ("two", "three")


def test_containers_are_read_as_engines_show_them() -> None:
    podman = {
        "Id": "abc",
        "State": {
            "Status": "exited",
            "ExitCode": 3,
            "OOMKilled": True,
            "StartedAt": "2026-11-15T18:53:46.83135799Z",
            "FinishedAt": "2026-11-15T18:54:22.794790397Z",
        },
        "NetworkSettings": {"Networks": {"n": {"IPAddress": "10.0.0.9"}}},
    }
    seen = parse_container("app", podman)
    assert (seen.state, seen.exit_code, seen.out_of_memory) == ("exited", 3, True)
    assert seen.started_at == "2026-11-15T18:53:46Z"
    assert 35.9 < seen.finished_s - seen.started_s < 36.0
    assert seen.addresses == ("10.0.0.9",)
    assert unix_time("0001-01-01T00:00:00Z") == 0.0
    assert unix_time("nonsense") == 0.0
    assert parse_container("app", {"State": {"Status": "restarting"}}).state == "running"


def test_a_machine_that_runs_has_its_address_and_digest() -> None:
    state = snapshot_state(
        PLAN, MachineSnapshot(["app"], {"app": UP}, now_s=500.0), ReadinessResults(), ""
    )
    assert (state.phase, state.reason, state.addresses) == ("Running", "", ("10.0.0.2",))
    assert [i.digest for i in state.images] == ["sha256:d"]


def test_out_of_memory_is_said_with_the_limit() -> None:
    record = MachineRecord(
        is_down=True, container="app", exit_code=137, out_of_memory=True, ended_s=200.0
    )
    state = snapshot_state(
        PLAN, MachineSnapshot(["app"], {"app": ENDED}, record), ReadinessResults(), ""
    )
    assert state.reason == Reason.INSTANCE_CRASHING
    assert "ran out of memory (its limit is 64Mi)" in state.message


def test_one_that_ended_before_is_believed_only_after_a_while() -> None:
    record = MachineRecord(
        restarts=1, container="app", exit_code=1, ended_s=90.0, last_lines=["bye"]
    )
    early = snapshot_state(
        PLAN, MachineSnapshot(["app"], {"app": UP}, record, now_s=105.0), ReadinessResults(), ""
    )
    assert (early.phase, early.last_lines) == ("Failed", ("bye",))
    late = snapshot_state(
        PLAN, MachineSnapshot(["app"], {"app": UP}, record, now_s=110.0), ReadinessResults(), ""
    )
    assert (late.phase, late.restarts, late.exit_code) == ("Running", 1, 1)


def test_a_machine_that_was_just_restarted_stays_crashed_until_it_is_inspected() -> None:
    """Pending for a moment at every restart would look like a new machine."""
    record = MachineRecord(restarts=3, exit_code=137, container="app", ended_s=200.0)
    state = snapshot_state(
        PLAN, MachineSnapshot(["app"], {"app": ENDED}, record, now_s=210.0), ReadinessResults(), ""
    )
    assert (state.phase, state.reason, state.restarts) == ("Failed", "InstanceCrashing", 3)
    probed = MachinePlan(containers=[ContainerPlan(name="app", image="web:1", readiness=Probe())])
    state = snapshot_state(
        probed,
        MachineSnapshot(["app"], {"app": ENDED}, record, now_s=210.0),
        ReadinessResults(),
        "",
    )
    assert (state.phase, state.restarts) == ("Pending", 3)


def test_a_problem_speaks_before_everything_else() -> None:
    problem = SetupProblem(Reason.IMAGE_UNAVAILABLE, "no such image", 60.0, 10.0)
    snapshot = MachineSnapshot(["app"], {}, problem=problem, can_create=True)
    state = snapshot_state(PLAN, snapshot, ReadinessResults(), "")
    assert (state.phase, state.reason) == ("Failed", Reason.IMAGE_UNAVAILABLE)


def test_probes_decide_whether_it_serves() -> None:
    probed = MachinePlan(containers=[ContainerPlan(name="app", image="w", readiness=Probe())])
    snapshot = MachineSnapshot(["app"], {"app": UP}, now_s=500.0)
    assert snapshot_state(probed, snapshot, ReadinessResults(), "").reason == Reason.STARTING
    bad = ReadinessResults({"app": False}, {"app": "404"})
    assert snapshot_state(probed, snapshot, bad, "").reason == Reason.NOT_READY
    assert snapshot_state(probed, snapshot, ReadinessResults({"app": True}), "").reason == ""


def test_a_probe_counts_periods_before_the_first_good_answer_and_answers_after_it() -> None:
    counter = ProbeCounter(Probe(period_seconds=2, failure_threshold=3))
    waited_s = 0.0
    verdicts: list[tuple[bool, float]] = []
    while not verdicts:
        verdict = counter.add_result(is_good=False)
        if verdict is not None:
            verdicts.append((verdict, waited_s))
        pause_s = counter.next_pause_s()
        assert pause_s <= 1.0, "until the first good answer it is asked often"
        waited_s += pause_s
    assert verdicts[0][0] is False
    assert 4.0 <= verdicts[0][1] < 6.0
    assert counter.add_result(is_good=True) is True
    assert counter.next_pause_s() == 2.0
    assert [counter.add_result(is_good=False) for _ in range(3)] == [None, None, False]


def test_use_is_what_was_counted_between_two_moments() -> None:
    told = {
        "read": "2026-01-01T00:00:00.5Z",
        "cpu_stats": {"cpu_usage": {"total_usage": 5_000_000_000}},
        "memory_stats": {"usage": 3 * 1024 * 1024, "limit": 64 * 1024 * 1024},
    }
    before = parse_sample(told)
    later = {**told, "read": "2026-01-01T00:00:01.0Z"}
    after = parse_sample({**later, "cpu_stats": {"cpu_usage": {"total_usage": 5_125_000_000}}})
    used = compute_usage([before, before], [after, None])
    assert (used.cpu_millicores, used.memory_mebibytes) == (250, 3)
    assert compute_usage([before], [before]).cpu_millicores == 0, "no time has passed"
    assert parse_sample(None) is None


async def test_one_that_does_not_run_uses_nothing_that_can_be_told() -> None:
    nobody = cast(ContainerOperations, None)  # nobody is asked
    machine = Machine("ns/web/uid", PLAN)
    assert await read_usage(nobody, machine) is None
    machine.record = record_sleep(machine.record, "stop")
    assert await read_usage(nobody, machine) == Usage(asleep=True)
