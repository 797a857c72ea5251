"""When an instance counts as available, and for how long it must be Ready."""

from __future__ import annotations

import msgspec
import pytest

from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import Container, ContainerPort, Probe, TcpSocket
from datum_compute.api.compute.workload import ScaleSettings
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.planning.rollout.slots import MinReady, min_ready_seconds
from datum_compute.planning.workload.templates import template_hash
from testkit.builders import NOW, a_deployment, an_instance


def at(seconds: int) -> str:
    """Return the time this long after NOW."""
    return timestamp(1_767_225_600 + seconds)


def deployment_of(*containers: Container, min_ready: int | None = None) -> WorkloadDeployment:
    scale = ScaleSettings(min_replicas=1, min_ready_seconds=min_ready)
    deployment = a_deployment(scale=scale)
    spec = deployment.spec.template.spec
    sandbox = msgspec.structs.replace(spec.runtime.sandbox, containers=list(containers))
    runtime = msgspec.structs.replace(spec.runtime, sandbox=sandbox)
    template = msgspec.structs.replace(
        deployment.spec.template, spec=msgspec.structs.replace(spec, runtime=runtime)
    )
    return msgspec.structs.replace(
        deployment, spec=msgspec.structs.replace(deployment.spec, template=template)
    )


PLAIN = Container(name="app", image="web:1")
PROBED = Container(
    name="probed",
    image="web:1",
    readiness_probe=Probe(tcp_socket=TcpSocket(port=8080)),
)
ALIVE = Container(
    name="alive", image="web:1", liveness_probe=Probe(tcp_socket=TcpSocket(port=8080))
)
TCP = Container(name="tcp", image="web:1", ports=[ContainerPort(name="http", port=8080)])
UDP = Container(
    name="udp", image="web:1", ports=[ContainerPort(name="dns", port=53, protocol="UDP")]
)


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([PLAIN], 5),
        ([PROBED], 0),
        ([TCP], 0),
        ([PLAIN, TCP], 0),
        ([UDP], 5),
        ([ALIVE], 5),
    ],
    ids=["nothing", "probe", "tcp port", "one of two containers", "udp port", "liveness only"],
)
def test_the_default_depends_on_the_readiness_check(
    containers: list[Container], expected: int
) -> None:
    assert min_ready_seconds(deployment_of(*containers), simulated=False) == expected


def test_the_simulated_driver_checks_readiness_itself() -> None:
    assert min_ready_seconds(deployment_of(PLAIN), simulated=True) == 0


@pytest.mark.parametrize("seconds", [0, 1, 60])
def test_a_setting_overrides_every_default(seconds: int) -> None:
    for container in (PLAIN, TCP):
        for simulated in (False, True):
            deployment = deployment_of(container, min_ready=seconds)
            assert min_ready_seconds(deployment, simulated=simulated) == seconds


def test_the_setting_is_not_part_of_the_template() -> None:
    plain, set_ = deployment_of(PLAIN), deployment_of(PLAIN, min_ready=30)
    assert template_hash(plain.spec.template) == template_hash(set_.spec.template)


@pytest.mark.parametrize(
    ("now", "expected"), [(0, False), (4, False), (5, True), (6, True), (90_000, True)]
)
def test_availability_counts_from_the_last_transition_of_ready(now: int, expected: bool) -> None:
    instance, min_ready = an_instance(0, ready_since=NOW), MinReady(5, at(now))
    assert min_ready.is_available(instance) is expected
    assert min_ready.seconds_until_available(instance) == (None if expected else 5 - now)


@pytest.mark.parametrize(
    "instance",
    [
        an_instance(0, ready=False),
        an_instance(0, ready=None),
        an_instance(0, terminating=True),
    ],
    ids=["not ready", "unknown", "terminating"],
)
def test_only_a_ready_instance_is_available(instance: object) -> None:
    for seconds in (0, 5):
        min_ready = MinReady(seconds, at(9000))
        assert not min_ready.is_available(instance)  # type: ignore[arg-type]
        assert min_ready.seconds_until_available(instance) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("ahead", "left"), [(1, 6), (5, 10), (6, None), (86_400, None)])
def test_a_clock_that_is_ahead_delays_by_no_more_than_the_time_itself(
    ahead: int, left: float | None
) -> None:
    """A transition time further in the future than that is ignored: the clocks disagree."""
    instance, min_ready = an_instance(0, ready_since=at(ahead)), MinReady(5, NOW)
    assert min_ready.seconds_until_available(instance) == left
    assert min_ready.is_available(instance) is (left is None)
