"""Which ports of a deployment are published, and what is said of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from datum_compute.api.conditions import UNKNOWN, find_condition, is_true
from datum_compute.api.instance import PROGRAMMED, READY, ContainerPort, Instance
from datum_compute.api.kinds import DEPLOYMENT
from datum_compute.api.meta import ref_of
from datum_compute.api.plane import PlaneName
from datum_compute.api.reasons import Reason
from datum_compute.api.workloaddeployment import Endpoint, WorkloadDeployment
from datum_compute.planning.plan import PatchStatus, Plan
from datum_compute.planning.rollout.slots import is_ready

_SCHEMES = {"https": "https", "tcp": "tcp", "grpc": "tcp", "tls": "tcp"}


def published_ports(deployment: WorkloadDeployment) -> list[ContainerPort]:
    """The named TCP ports of all containers; none of a deployment that goes."""
    if deployment.is_terminating:
        return []
    containers = deployment.spec.template.spec.runtime.sandbox.containers
    return [port for c in containers for port in c.ports if port.protocol == "TCP"]


def takes_connections(instance: Instance) -> bool:
    """Whether connections are passed on to the instance: it is ready, or it was set up and the
    driver cannot observe it now. An engine that does not answer stops no instance."""
    if instance.is_terminating:
        return False
    ready = find_condition(instance.status.conditions, READY)
    unobserved = ready is not None and (ready.status, ready.reason) == (
        UNKNOWN,
        Reason.NOT_OBSERVED,
    )
    programmed = is_true(instance.status.conditions, PROGRAMMED)
    return is_ready(instance) or (unobserved and programmed)


def last_ports(deployment: WorkloadDeployment) -> dict[str, int]:
    return {endpoint.name: endpoint.port for endpoint in deployment.status.endpoints}


def plan_endpoints(
    plane: PlaneName, deployment: WorkloadDeployment, published: Mapping[str, tuple[str, int]]
) -> Plan:
    """``published`` is the host and port of each name."""
    endpoints = [
        Endpoint(name=name, host=host, port=port, url=f"{_scheme(name)}://{host}:{port}")
        for name, (host, port) in sorted(published.items())
    ]
    if endpoints == deployment.status.endpoints:
        return Plan()
    return Plan((_write(plane, deployment, endpoints),))


def _scheme(name: str) -> str:
    return _SCHEMES.get(name.partition("-")[0], "http")


def _write(
    plane: PlaneName, deployment: WorkloadDeployment, endpoints: Sequence[Endpoint]
) -> PatchStatus:
    said = [{"name": e.name, "host": e.host, "port": e.port, "url": e.url} for e in endpoints]
    version = deployment.metadata.resource_version
    status = {"endpoints": said or None}
    return PatchStatus(plane, DEPLOYMENT, ref_of(deployment), version, status, "ports published")
