"""Which ports are published, and what is said of them."""

from __future__ import annotations

import msgspec

from datum_compute.api.conditions import UNKNOWN, Verdict, decided, with_condition
from datum_compute.api.instance import READY, Container, ContainerPort, Instance
from datum_compute.api.plane import cell_plane
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.planning.plan import PatchStatus
from datum_compute.planning.rollout.server import (
    last_ports,
    plan_endpoints,
    published_ports,
    takes_connections,
)
from testkit.builders import NOW, a_deployment, an_instance

CELL = cell_plane("dfw")


def with_ports(*ports: ContainerPort, terminating: bool = False) -> WorkloadDeployment:
    deployment = a_deployment(terminating=terminating)
    sandbox = msgspec.structs.replace(
        deployment.spec.template.spec.runtime.sandbox,
        containers=[Container(name="app", image="web:1", ports=list(ports))],
    )
    runtime = msgspec.structs.replace(deployment.spec.template.spec.runtime, sandbox=sandbox)
    template = msgspec.structs.replace(
        deployment.spec.template,
        spec=msgspec.structs.replace(deployment.spec.template.spec, runtime=runtime),
    )
    spec = msgspec.structs.replace(deployment.spec, template=template)
    return msgspec.structs.replace(deployment, spec=spec)


def unobserved(instance: Instance, reason: str = "NotObserved") -> Instance:
    ready = decided(READY, Verdict(UNKNOWN, reason, ""), generation=1, now=NOW)
    conditions = with_condition(instance.status.conditions, ready)
    return msgspec.structs.replace(
        instance, status=msgspec.structs.replace(instance.status, conditions=conditions)
    )


def test_an_instance_that_is_not_observed_now_keeps_its_connections() -> None:
    """An engine that is away has stopped nothing; one that was never set up serves nobody."""
    assert takes_connections(an_instance(0))
    assert takes_connections(unobserved(an_instance(0)))
    assert not takes_connections(an_instance(0, ready=False))
    assert not takes_connections(unobserved(an_instance(0, ready=False)))
    assert not takes_connections(unobserved(an_instance(0), reason="Pending"))
    assert not takes_connections(an_instance(0, terminating=True))


WEB = ContainerPort(name="http", port=8080)
DNS = ContainerPort(name="dns", port=53, protocol="UDP")


def test_named_tcp_ports_are_published_while_the_deployment_is_wanted() -> None:
    assert published_ports(with_ports(WEB, DNS)) == [WEB]
    assert published_ports(with_ports(WEB, terminating=True)) == []


def test_urls_are_written_once_and_the_port_is_remembered() -> None:
    deployment = with_ports(WEB)
    published = {"http": ("127.0.0.1", 40001), "https-api": ("127.0.0.1", 40002)}
    (write,) = plan_endpoints(CELL, deployment, published).actions
    assert isinstance(write, PatchStatus)
    urls = [endpoint["url"] for endpoint in write.status["endpoints"]]
    assert urls == ["http://127.0.0.1:40001", "https://127.0.0.1:40002"]
    told = msgspec.convert(write.status, type=type(deployment.status))
    after = msgspec.structs.replace(deployment, status=told)
    assert last_ports(after) == {"http": 40001, "https-api": 40002}
    assert plan_endpoints(CELL, after, published).actions == ()


def test_what_is_not_published_any_more_is_not_said_any_more() -> None:
    published = {"http": ("127.0.0.1", 40001)}
    (write,) = plan_endpoints(CELL, with_ports(WEB), published).actions
    assert isinstance(write, PatchStatus)
    told = msgspec.convert(write.status, type=type(with_ports().status))
    after = msgspec.structs.replace(with_ports(), status=told)
    (write,) = plan_endpoints(CELL, after, {}).actions
    assert isinstance(write, PatchStatus)
    assert write.status == {"endpoints": None}
