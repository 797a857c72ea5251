"""Requests to create containers, from the spec of a Server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from datum_compute.api import labels
from datum_compute.api.compute.data_sources import VolumeAttachment
from datum_compute.api.compute.instance import (
    Container,
    ContainerResources,
    EnvVar,
    ExecAction,
    InterfaceAddress,
    NetworkInterfaceStatus,
    Probe,
    ResourceAmounts,
    SecurityContext,
)
from datum_compute.api.compute.server import ServerSpec
from datum_compute.app.container_host import VolumeDirectories
from datum_compute.drivers.container_defaults import container_limits
from datum_compute.drivers.containers.container_spec import (
    INIT,
    INIT_MISSING,
    ContainerOwner,
    CreationInputs,
    InitUse,
    build_plan,
    command_line,
    container_body,
    container_labels,
    container_name,
    hardware_address,
    program_paths,
    read_plan,
)
from datum_compute.drivers.containers.images import ImageInfo
from datum_compute.drivers.driver import NO_DATA, DataFile, MachineData, PermanentError
from datum_compute.drivers.logs import LogOwner

OWNER = ContainerOwner("platform", "dfw")
ID = "ns/web-0/uid"
IMAGE = ImageInfo("sha256:id", "sha256:digest", ("entry",), ("cmd",))


def a_container(name: str = "app", **fields: Any) -> Container:
    return Container(name=name, image="web:1", **fields)


def a_spec(*containers: Container, **fields: Any) -> ServerSpec:
    return ServerSpec(instance_type="d1", template_hash="h", containers=list(containers), **fields)


def body(spec: ServerSpec, index: int = 0, data: MachineData = NO_DATA, **folders: str) -> Any:
    plan = build_plan(OWNER, spec, {})
    inputs = CreationInputs(OWNER, ID, spec, data, plan, container_limits(spec), folders)
    return container_body(inputs, spec.containers[index], IMAGE)


def limited(cpu: str, memory: str) -> ContainerResources:
    return ContainerResources(limits=ResourceAmounts(cpu=cpu, memory=memory))


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        ([], [], ["entry", "cmd"]),
        ([], ["a"], ["entry", "a"]),
        (["c"], [], ["c"]),
        (["c"], ["a"], ["c", "a"]),
    ],
)
def test_command_replaces_the_entry_point_and_args_the_arguments(
    command: list[str], args: list[str], expected: list[str]
) -> None:
    assert command_line(a_container(command=command, args=args), IMAGE) == expected


def test_an_image_without_a_command_is_rejected() -> None:
    with pytest.raises(PermanentError, match="has no command; set the command"):
        command_line(a_container(), ImageInfo("id", "digest"))


def test_containers_get_no_privileges() -> None:
    config = body(a_spec(a_container()))["HostConfig"]
    assert config["Privileged"] is False
    assert config["CapDrop"] == ["ALL"]
    assert "SYS_ADMIN" not in config["CapAdd"]
    assert config["SecurityOpt"] == ["no-new-privileges"]
    assert config["RestartPolicy"] == {"Name": "no"}, "the driver restarts containers"


def test_user_and_read_only_root_are_those_of_the_security_context() -> None:
    context = SecurityContext(run_as_user=5, run_as_group=6, read_only_root_filesystem=True)
    created = body(a_spec(a_container(security_context=context)))
    assert created["User"] == "5:6"
    assert created["HostConfig"]["ReadonlyRootfs"] is True
    assert "/tmp" in created["HostConfig"]["Tmpfs"]


def test_containers_get_no_swap() -> None:
    config = body(a_spec(a_container(resources=limited("250m", "64Mi"))))["HostConfig"]
    assert config["Memory"] == config["MemorySwap"] == 64 * 1024 * 1024
    assert config["NanoCpus"] == 250_000_000


def test_containers_join_the_network_namespace_of_the_first() -> None:
    given = InterfaceAddress(
        family="IPv4", address="10.1.2.3", prefix_length=24, gateway="10.1.2.1"
    )
    spec = a_spec(
        a_container("one"),
        a_container("two"),
        interfaces=[NetworkInterfaceStatus(addresses=[given])],
    )
    first, second = body(spec, 0), body(spec, 1)
    (network,) = first["NetworkingConfig"]["EndpointsConfig"]
    assert first["HostConfig"]["NetworkMode"] == network
    endpoint = first["NetworkingConfig"]["EndpointsConfig"][network]
    assert endpoint == {
        "IPAMConfig": {"IPv4Address": "10.1.2.3"},
        "MacAddress": hardware_address("10.1.2.3"),
    }
    first_name = container_name(OWNER, ID, "one")
    assert second["HostConfig"]["NetworkMode"] == f"container:{first_name}"
    assert "NetworkingConfig" not in second


def test_the_hardware_address_is_derived_from_the_ip_address() -> None:
    first = hardware_address("10.1.2.3")
    assert first == hardware_address("10.1.2.3") != hardware_address("10.1.2.4")
    assert first.startswith("02:"), "a locally administered address"
    assert hardware_address("fd00::1") == hardware_address("fd00:0::1")


def test_variables_of_the_data_replace_those_of_the_spec() -> None:
    spec = a_spec(a_container(env=[EnvVar(name="A", value="spec")]))
    assert body(spec)["Env"] == ["A=spec"]
    data = MachineData(variables={"app": {"A": "data"}})
    assert body(spec, data=data)["Env"] == ["A=data"]


def test_volumes_are_mounted_read_only() -> None:
    attached = [VolumeAttachment(name="v", mount_path="/data")]
    created = body(a_spec(a_container(volume_attachments=attached)), v="/state/v")
    assert created["HostConfig"]["Binds"] == ["/state/v:/data:ro"]


def test_the_plan_is_read_from_the_labels_and_contains_no_secret() -> None:
    spec = a_spec(a_container(env=[EnvVar(name="A", value="hidden")]))
    plan = build_plan(OWNER, spec, {"app": 64})
    labels = container_labels(OWNER, ID, "app", plan)
    assert read_plan(labels) == plan
    assert plan.template_hash == "h"
    assert "hidden" not in str(labels)
    assert read_plan({}) is None


def test_container_names_differ_between_machines_and_platforms() -> None:
    names = {
        container_name(owner, machine, container)
        for owner in (OWNER, ContainerOwner("other", "dfw"), ContainerOwner("platform", "iad"))
        for machine in (ID, "ns/web-0/other", "other/web-0/uid")
        for container in ("app", "helper")
    }
    assert len(names) == 18


@pytest.mark.parametrize(
    ("use", "has_init", "label"),
    [("on", True, None), ("off", False, None), ("missing", False, INIT_MISSING)],
)
def test_the_body_states_whether_there_is_an_init_process(
    use: InitUse, has_init: bool, label: str | None
) -> None:
    spec = a_spec(a_container())
    plan = build_plan(OWNER, spec, {})
    inputs = CreationInputs(OWNER, ID, spec, NO_DATA, plan, container_limits(spec), {})
    created = container_body(inputs, spec.containers[0], IMAGE, use)
    assert created["HostConfig"]["Init"] is has_init
    assert created["Labels"].get(INIT) == label


@pytest.mark.parametrize(
    ("program", "variables", "paths"),
    [
        ("/bin/web", ["PATH=/x"], ["/bin/web"]),
        ("web", ["A=PATH=/y", "PATH=/x:/bin/:"], ["/x/web", "/bin/web"]),
        ("web", ["PATH=/a", "PATH=/b"], ["/b/web"]),
        ("./web", ["PATH=/x"], []),
        ("bin/web", [], []),
        ("web", ["PATH=relative"], []),
    ],
)
def test_the_paths_of_a_program_follow_from_path(
    program: str, variables: list[str], paths: list[str]
) -> None:
    assert program_paths(program, variables) == paths


def test_a_container_without_path_gets_the_default() -> None:
    assert "/usr/bin/web" in program_paths("web", ["A=1"])


def test_the_plan_contains_the_workload_of_the_machine() -> None:
    tags = {labels.WORKLOAD_NAME: "web", labels.WORKLOAD_UID: "uid-1", labels.CITY_CODE: "DFW"}
    plan = build_plan(OWNER, a_spec(a_container(), tags=tags), {})
    assert plan.owner == LogOwner(workload="web", uid="uid-1", city="DFW")
    assert build_plan(OWNER, a_spec(a_container()), {}).owner == LogOwner()


def test_the_init_process_is_not_part_of_the_plan() -> None:
    """The labels of existing containers contain the plan of an earlier release."""
    on, off = (build_plan(OWNER, a_spec(a_container(init=init)), {}) for init in (True, False))
    assert on.containers == off.containers


@pytest.mark.parametrize(
    "fields",
    [
        {"command": ["a\0"]},
        {"args": ["a", "\0b"]},
        {"env": [EnvVar(name="A", value="a\0b")]},
        {"env": [EnvVar(name="A\0", value="")]},
        {"readiness_probe": Probe(exec_=ExecAction(command=["\0"]))},
        {"liveness_probe": Probe(exec_=ExecAction(command=["\0"]))},
        {"volume_attachments": [VolumeAttachment(name="v", mount_path="/a\0")]},
        {"volume_attachments": [VolumeAttachment(name="v", mount_path="/./proc/1")]},
        {"volume_attachments": [VolumeAttachment(name="v", mount_path="//")]},
    ],
)
def test_invalid_process_input_is_not_sent_to_the_engine(fields: dict[str, Any]) -> None:
    """An object may have been stored before the rule that rejects it."""
    with pytest.raises(PermanentError, match=r"NUL byte|must not be"):
        body(a_spec(a_container(**fields)))


def test_a_file_whose_path_has_a_nul_byte_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="NUL byte"):
        VolumeDirectories(tmp_path / "data").write(ID, "v", [DataFile("a\0b", b"x")])
