"""Machines as containers of a real engine."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from datum_compute.api.compute.data_sources import ConfigMapVolume, Volume, VolumeAttachment
from datum_compute.api.compute.instance import (
    Container,
    ContainerResources,
    EnvVar,
    ResourceAmounts,
    SecurityContext,
)
from datum_compute.api.conditions import Reason
from datum_compute.drivers.containers.container_spec import hardware_address
from datum_compute.drivers.containers.machine import Machine
from datum_compute.drivers.containers.status import machine_state
from datum_compute.drivers.driver import NOT_OBSERVED, DataFile, Driver, MachineData, MachineState
from testkit.conformance import driver as driver_conformance
from testkit.processes.container_cell import ID, Cell, a_probe, an_interface
from testkit.processes.container_engine import PASSWORD, USER, TestEngine

pytestmark = pytest.mark.timeout(180)

Settle = Callable[[], Awaitable[None]]


def page(address: str, port: int = 8080) -> str:
    host = f"[{address}]" if ":" in address else address
    with urllib.request.urlopen(f"http://{host}:{port}/", timeout=5) as answer:
        return str(answer.read().decode().strip())


def _is_settled(machine: Machine) -> bool:
    if machine.record.sleep_mode:
        return machine.is_sleep_settled()
    state = machine_state(machine, 0)
    if machine.record.is_suspended:
        return state.reason == Reason.STOPPED
    return not machine.sleep.is_wake_requested and state.phase == "Running" and not state.reason


@pytest.mark.parametrize("check", driver_conformance.CHECKS, ids=lambda check: check.__name__)
async def test_the_driver_passes_the_conformance_checks(
    cell: Cell, check: Callable[[Driver, Settle], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_conformance, "SPEC", cell.spec())
    await check(cell.driver, partial(settle, cell))


@pytest.mark.parametrize("check", driver_conformance.ADOPTION, ids=lambda check: check.__name__)
async def test_the_driver_passes_the_adoption_checks(
    cell: Cell,
    check: Callable[[Driver, Settle, driver_conformance.Adopt], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probe = a_probe(httpGet={"port": 8080})
    monkeypatch.setattr(driver_conformance, "SPEC", cell.spec(readiness_probe=probe))

    async def adopt() -> Driver:
        await cell.kill()
        await cell.start()
        return cell.driver

    await check(cell.driver, partial(settle, cell), adopt)


async def settle(cell: Cell) -> None:
    async def is_settled() -> bool:
        known = cell.driver._machines.values()
        return all(machine.is_wanted and _is_settled(machine) for machine in known)

    await cell.until(is_settled)


@pytest.mark.parametrize(
    ("address", "gateway", "length"),
    [("10.233.7.9", "10.233.7.1", 24), ("fd3a:9::9", "fd3a:9::1", 64)],
)
async def test_a_machine_has_its_assigned_address_and_is_reachable_from_the_host(
    cell: Cell, address: str, gateway: str, length: int
) -> None:
    spec = cell.spec(
        interfaces=[an_interface(address, gateway, length)],
        readiness_probe=a_probe(httpGet={"port": 8080}),
    )
    await cell.driver.start(ID, spec)
    state = await cell.wait_until_running()
    assert state.addresses == (address,)
    assert await asyncio.to_thread(page, address) == "v1"
    assert [image.image for image in state.images] == [cell.engine.image("web:1")]
    assert state.images[0].digest.startswith("sha256:")
    await cell.driver.remove(ID)
    await cell.wait_until_gone()
    assert cell.containers() == []
    networks = cell.engine.podman("network", "ls", "--format", "{{.Name}}").split()
    assert [name for name in networks if name.startswith("datum-")] == []


async def test_a_successor_keeps_the_hardware_address_of_its_address(cell: Cell) -> None:
    """Otherwise the host sends its packets to the predecessor until its neighbor entry expires."""
    spec = cell.spec(interfaces=[an_interface("10.98.7.5", "10.98.7.1", 24)])
    found = []
    for machine_id in (ID, f"{ID}-next"):
        await cell.driver.start(machine_id, spec)
        await cell.wait_until_running(machine_id)
        (container,) = cell.containers()
        (inspected,) = json.loads(cell.engine.podman("inspect", container))
        (network,) = inspected["NetworkSettings"]["Networks"].values()
        found.append(network["MacAddress"])
        await cell.driver.remove(machine_id)
        await cell.wait_until_gone(machine_id)
    assert found == [hardware_address("10.98.7.5")] * 2


async def test_command_and_args_replace_those_of_the_image(engine: TestEngine, cell: Cell) -> None:
    engine.publish("echo:1", "v", 'ENTRYPOINT ["echo", "entry"]', 'CMD ["image"]')
    image = engine.image("echo:1")
    expected = {
        "neither": ("entry image", [], []),
        "args": ("entry given", [], ["given"]),
        "command": ("", ["echo"], []),
        "both": ("a b", ["echo", "a"], ["b"]),
    }
    for name, (output, command, args) in expected.items():
        container = Container(name="app", image=image, command=command, args=args)
        await cell.driver.start(f"ns/{name}/1", cell.of_containers(container))
        ended = await cell.wait_for_state(lambda s: s.phase == "Failed", f"ns/{name}/1")
        assert ended.reason == Reason.INSTANCE_CRASHING
        assert [line for line in ended.last_lines if line] == ([output] if output else []), name


async def test_variables_and_read_only_files_are_in_the_container(cell: Cell) -> None:
    script = "echo $WORD; cat /data/sub/file; ls -l /data/sub; touch /data/x; sleep 1000"
    spec = cell.spec(
        *("sh", "-c", script),
        env=[EnvVar(name="WORD", value="replaced")],
        volumes=[Volume(name="v", config_map=ConfigMapVolume(name="c"))],
        volume_attachments=[VolumeAttachment(name="v", mount_path="/data")],
    )
    data = MachineData(
        variables={"app": {"WORD": "secret-word"}},
        files={"v": (DataFile("sub/file", b"content\n", 0o440),)},
    )
    await cell.driver.start(ID, spec, data)
    await cell.wait_until_running()
    (name,) = cell.containers()

    async def has_output() -> bool:
        return "Read-only file system" in cell.engine.logs(name)

    await cell.until(has_output)
    output = cell.engine.logs(name)
    assert output.startswith("secret-word\ncontent\n")
    assert "-r--r-----" in output
    await cell.driver.remove(ID)
    await cell.wait_until_gone()
    assert list((cell.state / "data" / "dfw").iterdir()) == [], "secrets were left on the disk"


async def test_security_context_and_limits_are_applied(cell: Cell) -> None:
    script = (
        "id; touch /x; touch /tmp/x && echo tmp; cat /proc/self/status; "
        "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; sleep 1000"
    )
    spec = cell.spec(
        *("sh", "-c", script),
        security_context=SecurityContext(
            run_as_user=1000, run_as_group=1000, read_only_root_filesystem=True
        ),
        resources=ResourceAmounts(cpu="500m", memory="64Mi"),
    )
    await cell.driver.start(ID, spec)
    await cell.wait_until_running()
    (name,) = cell.containers()

    async def has_output() -> bool:
        return "67108864" in cell.engine.logs(name)

    await cell.until(has_output)
    output = cell.engine.logs(name)
    assert "uid=1000(1000) gid=1000(1000)" in output
    assert "/x: Read-only file system" in output
    assert "tmp" in output.splitlines()
    assert "NoNewPrivs:\t1" in output
    quota = cell.engine.podman("inspect", "--format", "{{.HostConfig.NanoCpus}}", name).strip()
    assert quota == "500000000"


async def test_containers_of_one_machine_share_its_address_and_end_together(cell: Cell) -> None:
    image = cell.engine.image("web:1")
    helper = ["sh", "-c", "wget -qO- http://127.0.0.1:8080/; sleep 2; exit 7"]
    probe = a_probe(tcpSocket={"port": 8080})
    spec = cell.of_containers(
        Container(name="app", image=image, readiness_probe=probe),
        Container(name="helper", image=image, command=helper),
    )
    await cell.driver.start(ID, spec)
    await cell.wait_until_running()
    ended = await cell.wait_for_state(lambda s: s.phase == "Failed")
    assert (ended.exit_code, ended.reason) == (7, Reason.INSTANCE_CRASHING)
    assert "helper" in ended.message
    assert list(ended.last_lines) == ["v1"]

    async def all_stopped() -> bool:
        return cell.engine.podman("ps", "--quiet").split() == []

    await cell.until(all_stopped)
    again = await cell.wait_for_state(lambda s: s.phase == "Running" and s.restarts == 1)
    assert again.exit_code == 7


@pytest.mark.parametrize(
    ("image", "words"),
    [("none:1", "manifest unknown"), ("web:none", "manifest unknown")],
)
async def test_a_missing_image_is_reported_with_the_message_of_the_registry(
    cell: Cell, image: str, words: str
) -> None:
    await cell.driver.start(ID, cell.spec(image=image))
    failed = await cell.wait_for_state(lambda s: s.phase == "Failed")
    assert failed.reason == Reason.IMAGE_UNAVAILABLE
    assert cell.engine.image(image) in failed.message
    assert words in failed.message
    await cell.driver.remove(ID)
    await cell.wait_until_gone()
    assert cell.containers() == []


async def test_an_unreachable_registry_and_a_missing_image_with_pull_policy_never(
    cell: Cell,
) -> None:
    away = Container(name="app", image="127.0.0.1:9/web:1")
    await cell.driver.start("ns/away/1", cell.of_containers(away))
    never = cell.spec(image="web:missing", image_pull_policy="Never")
    await cell.driver.start("ns/never/1", never)
    failed = await cell.wait_for_state(lambda s: s.phase == "Failed", "ns/away/1")
    assert failed.reason == Reason.REGISTRY_UNREACHABLE
    assert "connection refused" in failed.message
    failed = await cell.wait_for_state(lambda s: s.phase == "Failed", "ns/never/1")
    assert "imagePullPolicy is Never" in failed.message


async def test_a_missing_command_is_a_configuration_error(cell: Cell) -> None:
    await cell.driver.start(ID, cell.spec("/no/such/program"))
    failed = await cell.wait_for_state(lambda s: s.phase == "Failed")
    assert failed.reason == Reason.CONFIGURATION_ERROR
    assert "/no/such/program" in failed.message


async def test_a_failed_mount_is_reported_with_its_volume_and_without_secrets(cell: Cell) -> None:
    spec = cell.spec(
        volumes=[Volume(name="v", config_map=ConfigMapVolume(name="c"))],
        volume_attachments=[VolumeAttachment(name="v", mount_path="/data")],
    )
    files = (DataFile("file", b"a", 0o644), DataFile("file/below", b"b", 0o644))
    data = MachineData(variables={"app": {"PASSWORD": "hunter22"}}, files={"v": files})
    await cell.driver.start(ID, spec, data)
    failed = await cell.wait_for_state(lambda s: s.phase == "Failed")
    assert failed.reason == Reason.CONFIGURATION_ERROR
    assert "volume v: file/below" in failed.message
    assert "hunter22" not in failed.message


async def test_a_crashed_container_is_restarted_and_its_exit_reported(cell: Cell) -> None:
    script = "for i in $(seq 30); do echo line $i; done; exit 3"
    await cell.driver.start(ID, cell.spec("sh", "-c", script))
    ended = await cell.wait_for_state(lambda s: s.phase == "Failed")
    assert ended.reason == Reason.INSTANCE_CRASHING
    assert (ended.exit_code, ended.restarts) == (3, 0)
    assert ended.message == "container app exited with code 3"
    assert list(ended.last_lines) == [f"line {n}" for n in range(11, 31)]
    again = await cell.wait_for_state(lambda s: s.restarts == 1, within_s=20)
    assert again.phase == "Failed", "one that crashes is not called running in between"


async def test_an_out_of_memory_kill_is_reported(cell: Cell) -> None:
    spec = cell.spec(
        *("tail", "-c", "200000000", "/dev/zero"),
        resources=ResourceAmounts(cpu="1", memory="32Mi"),
    )
    await cell.driver.start(ID, spec)
    ended = await cell.wait_for_state(lambda s: s.phase == "Failed")
    assert ended.exit_code == 137
    assert "ran out of memory (its limit is 32Mi)" in ended.message
    assert "OOM" in ended.message


async def test_a_machine_is_ready_only_while_its_readiness_probe_succeeds(cell: Cell) -> None:
    script = "sleep 1; touch /tmp/ready; sleep 1000"
    probe = a_probe(exec={"command": ["test", "-e", "/tmp/ready"]}, periodSeconds=1)
    await cell.driver.start(ID, cell.spec("sh", "-c", script, readiness_probe=probe))
    waiting = await cell.wait_for_state(lambda s: s.phase == "Running")
    assert waiting.reason == Reason.STARTING
    await cell.wait_until_running()
    (name,) = cell.containers()
    cell.engine.podman("exec", name, "rm", "/tmp/ready")
    unready = await cell.wait_for_state(lambda s: s.reason == Reason.NOT_READY)
    assert unready.phase == "Running"
    assert "test exited with code 1" in unready.message
    cell.engine.podman("exec", name, "touch", "/tmp/ready")
    await cell.wait_until_running()


async def test_a_container_with_a_failed_liveness_probe_is_restarted(cell: Cell) -> None:
    probe = a_probe(httpGet={"port": 8080, "path": "/none"}, periodSeconds=1, failureThreshold=2)
    await cell.driver.start(ID, cell.spec(liveness_probe=probe))
    ended = await cell.wait_for_state(lambda s: s.phase == "Failed")
    assert ended.reason == Reason.INSTANCE_CRASHING
    assert "liveness probe failed" in ended.message
    assert "404" in ended.message
    await cell.wait_for_state(lambda s: s.restarts == 1)


async def test_a_new_process_adopts_running_machines(cell: Cell) -> None:
    probe = a_probe(httpGet={"port": 8080})
    await cell.driver.start(ID, cell.spec(readiness_probe=probe))
    before = await cell.wait_until_running()
    (name,) = cell.containers()
    pid = cell.engine.podman("inspect", "--format", "{{.State.Pid}}", name)
    await cell.kill()
    await cell.start()
    after = await cell.wait_until_running()
    assert after == before
    await cell.driver.start(ID, cell.spec(readiness_probe=probe))
    assert cell.containers() == [name]
    assert cell.engine.podman("inspect", "--format", "{{.State.Pid}}", name) == pid


async def test_the_restart_count_survives_the_process(cell: Cell) -> None:
    await cell.driver.start(ID, cell.spec("sh", "-c", "sleep 1; exit 4"))
    await cell.wait_for_state(lambda s: s.restarts == 1, within_s=40)
    await asyncio.sleep(0.3)  # the table is written at most ten times a second
    await cell.kill()
    await cell.start()
    found = await cell.wait_for_state(lambda s: s.restarts >= 1)
    assert found.exit_code == 4


async def test_an_engine_restart_changes_no_machine(cell: Cell) -> None:
    await cell.driver.start(ID, cell.spec())
    before = await cell.wait_until_running()
    cell.engine.stop_engine()
    try:
        assert await asyncio.to_thread(page, before.addresses[0]) == "v1"
        assert await cell.driver.observe(ID) in (before, NOT_OBSERVED)
    finally:
        cell.engine.start_engine()

    async def answers() -> bool:
        try:
            return await cell.driver.machines() == [ID]
        except Exception:
            return False

    await cell.until(answers)
    assert await cell.wait_until_running() == before
    (name,) = cell.containers()
    cell.engine.podman("kill", name)
    ended = await cell.wait_for_state(lambda s: s.phase == "Failed")
    assert ended.exit_code == 137, "the driver receives events again"


async def test_an_incomplete_machine_is_recreated(cell: Cell) -> None:
    """A process killed between the creation of two containers leaves a machine like this."""
    image = cell.engine.image("web:1")
    sleeper = ["sleep", "1000"]
    spec = cell.of_containers(
        Container(name="app", image=image), Container(name="helper", image=image, command=sleeper)
    )
    await cell.driver.start(ID, spec)
    await cell.wait_until_running()
    (helper,) = [name for name in cell.containers() if "helper" in name]
    await cell.kill()
    cell.engine.podman("rm", "--force", "--time", "0", helper)
    await cell.start()
    await cell.wait_until_gone()
    assert await cell.driver.machines() == [ID], "what is left of it is not hidden"
    await cell.driver.start(ID, spec)
    await cell.wait_until_running()
    assert len(cell.containers()) == 2


async def test_containers_of_another_platform_are_not_touched(
    cell: Cell, engine: TestEngine
) -> None:
    other = Cell(engine, cell.state.parent / "other")
    await other.start()
    try:
        await other.driver.start(ID, other.spec())
        await other.wait_until_running()
        assert await cell.driver.machines() == []
        await cell.driver.remove(ID)
        assert len(cell.containers()) == 1
    finally:
        await other.clean()


async def test_a_removal_sends_sigterm_and_then_sigkill(cell: Cell) -> None:
    polite = "trap 'echo bye; exit 0' TERM; while true; do sleep 0.1; done"
    await cell.driver.start("ns/polite/1", cell.spec("sh", "-c", polite))
    await cell.driver.start("ns/deaf/1", cell.spec("sh", "-c", "trap '' TERM; sleep 1000"))
    await cell.wait_until_running("ns/polite/1")
    await cell.wait_until_running("ns/deaf/1")
    for machine_id in ("ns/polite/1", "ns/deaf/1"):
        await cell.driver.remove(machine_id)
    stopping = await cell.driver.observe("ns/deaf/1")
    assert isinstance(stopping, MachineState)
    assert stopping.reason == Reason.STOPPING
    await cell.wait_until_gone("ns/polite/1")
    await cell.wait_until_gone("ns/deaf/1")


async def test_limits_of_a_container_replace_those_of_the_machine(cell: Cell) -> None:
    own = ContainerResources(limits=ResourceAmounts(cpu="250m", memory="48Mi"))
    image = cell.engine.image("web:1")
    spec = cell.of_containers(
        Container(name="app", image=image, resources=own),
        resources=ResourceAmounts(cpu="2", memory="1Gi"),
    )
    await cell.driver.start(ID, spec)
    await cell.wait_until_running()
    (name,) = cell.containers()
    memory = cell.engine.podman("inspect", "--format", "{{.HostConfig.Memory}}", name).strip()
    assert memory == str(48 * 1024 * 1024)


async def test_a_private_image_needs_the_right_credentials(cell: Cell) -> None:
    private = cell.engine.private
    spec = cell.of_containers(
        Container(name="app", image=f"{private}/web:1", image_pull_policy="Always")
    )
    for machine_id, password, phase in (
        ("ns/right/1", PASSWORD, "Running"),
        ("ns/wrong/1", "guess", "Failed"),
        ("ns/none/1", "", "Failed"),
    ):
        login = {"username": USER, "password": password}
        config = json.dumps({"auths": {private: login} if password else {}}).encode()
        await cell.driver.start(machine_id, spec, MachineData(pull_configs=(config,)))

        def has_ended(state: MachineState, phase: str = phase) -> bool:
            return state.phase == phase

        state = await cell.wait_for_state(has_ended, machine_id)
        if phase == "Failed":
            assert state.reason == Reason.IMAGE_UNAVAILABLE
            assert "unauthorized" in state.message
            assert "guess" not in state.message


async def test_the_usage_of_a_machine_is_measured(cell: Cell) -> None:
    spec = cell.spec(
        *("sh", "-c", "while true; do true; done"),
        resources=ResourceAmounts(cpu="300m", memory="64Mi"),
    )
    await cell.driver.start(ID, spec)
    await cell.wait_until_running()
    usage = await cell.driver.queries.usage("ns/web-0")
    assert usage is not None
    assert 50 <= usage.cpu_millicores <= 400, "its limit is 300m"
    assert usage.memory_limit_mebibytes == 64
    assert await cell.driver.queries.usage("ns/missing") is None


async def test_a_crash_report_survives_process_and_machine_and_contains_no_secret(
    cell: Cell,
) -> None:
    asked = "/dev/shm/asked"
    script = f"echo one; echo two; until [ -s {asked} ]; do sleep 0.1; done; exit 3"
    # The second probe starts after the first one ended, and only the second ends the container.
    question = f"echo not yet; [ -e {asked} ] && echo >>{asked}; touch {asked}; exit 4"
    probe = a_probe(exec={"command": ["sh", "-c", question]}, timeoutSeconds=60)
    variables = {"app": {"PASSWORD": "hunter22", "PATH": "/bin"}}
    spec = cell.spec("sh", "-c", script, readiness_probe=probe)
    await cell.driver.start(ID, spec, MachineData(variables=variables))
    await cell.wait_for_state(lambda s: s.exit_code == 3)
    await cell.kill()
    await cell.start()
    (card,) = await cell.driver.queries.crashes("ns/web-0")
    assert (card.exit_code, card.out_of_memory, card.planned) == (3, False, False)
    assert (card.uid, card.container) == ("uid-1", "app")
    assert card.message == "container app exited with code 3"
    assert card.lines == ["one", "two"]
    assert card.probes == {"readiness probe of app": "sh exited with code 4: not yet"}
    assert [moment.text for moment in card.moments][:2] == [
        "the containers were created",
        "started: app",
    ]
    await cell.driver.remove(ID)
    await cell.wait_until_gone()
    *_, removal = await cell.driver.queries.crashes("ns/web-0")
    assert removal.planned
    assert removal.message == (
        "removal was requested; until then: container app exited with code 3"
    )
    files = (cell.state / "crashes").rglob("*.json")
    assert all(b"hunter22" not in file.read_bytes() for file in files)


async def test_a_machine_that_never_ran_leaves_a_report_with_the_cause(cell: Cell) -> None:
    await cell.driver.start(ID, cell.spec("sh", image="web:none"))
    await cell.wait_for_state(lambda s: s.reason == Reason.IMAGE_UNAVAILABLE)
    await cell.driver.remove(ID)
    await cell.wait_until_gone()
    (card,) = await cell.driver.queries.crashes("ns/web-0")
    assert "until then: ImageUnavailable" in card.message
    assert card.exit_code is None


async def test_an_image_is_checked_in_its_registry_without_a_pull(
    cell: Cell, engine: TestEngine
) -> None:
    async def verdict(image: str, policy: str = "Always", *configs: bytes) -> tuple[str, str]:
        found = await cell.driver.queries.check_image(image, policy, configs)
        return found.outcome, found.words

    def config(password: str) -> bytes:
        login = {"username": USER, "password": password}
        return json.dumps({"auths": {engine.private: login}}).encode()

    found = await cell.driver.queries.check_image(engine.image("web:1"), "Always", ())
    assert (found.outcome, found.digest[:7]) == ("found", "sha256:")
    assert await verdict(engine.image(f"web@{found.digest}")) == ("found", "")
    assert await verdict(engine.image("web:none")) == ("missing", "manifest unknown")
    assert await verdict(engine.image("missing:1")) == ("missing", "manifest unknown")
    private = f"{engine.private}/web:1"
    assert (await verdict(private))[0] == "denied"
    assert (await verdict(private, "Always", config("wrong")))[0] == "denied"
    assert await verdict(private, "Always", config(PASSWORD)) == ("found", "")
    assert await verdict("127.0.0.1:1/web:1") == (
        *("unknown", "registry 127.0.0.1:1: connection refused"),
    )
    assert await verdict("registry.invalid/web:1", "Never") == (
        *("missing", "the host does not have it"),
    )
