"""Containers without limits share the remaining resources of the machine."""

from __future__ import annotations

from typing import Any

from datum_compute.api.compute.instance import Container, ContainerResources, ResourceAmounts
from datum_compute.api.compute.server import ServerSpec
from datum_compute.drivers.container_defaults import ContainerLimits, container_limits


def a_container(name: str = "app", **fields: Any) -> Container:
    return Container(name=name, image="web:1", **fields)


def a_spec(*containers: Container, **fields: Any) -> ServerSpec:
    return ServerSpec(instance_type="d1", template_hash="h", containers=list(containers), **fields)


def limited(cpu: str, memory: str) -> ContainerResources:
    return ContainerResources(limits=ResourceAmounts(cpu=cpu, memory=memory))


def test_all_limits_together_do_not_exceed_those_of_the_machine() -> None:
    spec = a_spec(
        a_container("one", resources=limited("500m", "256Mi")),
        a_container("two"),
        a_container("three"),
        resources=ResourceAmounts(cpu="2", memory="1Gi"),
    )
    assert container_limits(spec) == {
        "one": ContainerLimits(500, 256),
        "two": ContainerLimits(750, 384),
        "three": ContainerLimits(750, 384),
    }
    assert container_limits(a_spec(a_container())) == {"app": ContainerLimits(0, 0)}
