"""Reads a workload with its deployments and instances, and the owner of an instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import Instance
from datum_compute.api.compute.workload import Workload
from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, WORKLOAD
from datum_compute.api.labels import CITY_CODE, PLACEMENT_NAME, WORKLOAD_NAME, WORKLOAD_UID
from datum_compute.api.meta.objects import ApiObject, Ref
from datum_compute.api.planes import deployment_of, normalize_city
from datum_compute.cli.connect.session import Session
from datum_compute.cli.errors import MissingError
from datum_compute.cli.groups import named_hint
from datum_compute.client.responses import ListResult


@dataclass(frozen=True, slots=True)
class Observed:
    """``workload`` is None if it was deleted, or if the name now belongs to another object."""

    workload: Workload | None
    deployments: ListResult[WorkloadDeployment]
    instances: ListResult[Instance]


async def find_workload(session: Session, name: str) -> Workload:
    try:
        return await session.client.get(WORKLOAD, Ref(session.namespace, name))
    except NotFound:
        raise await missing_workload(session, name) from None


async def missing_workload(session: Session, name: str) -> MissingError:
    """Return the error for a workload that does not exist, with a guess at the intended name."""
    listed = await session.client.list(WORKLOAD, session.namespace)
    names = [workload.metadata.name for workload in listed.items]
    deploy = session.command("deploy", name, "--image=IMAGE", "--city=DFW")
    hint = named_hint(name, names) or f"The project has no workloads. Create one: {deploy}"
    return MissingError(f"There is no workload {name!r} in {session.target_name}.", hint)


async def observe_parts(session: Session, workload: Workload) -> Observed:
    """Read the parts of a workload that was just read; ``assess_rollout`` explains the order."""
    labels = {WORKLOAD_UID: workload.metadata.uid}
    deployments = await session.client.list(DEPLOYMENT, session.namespace, labels=labels)
    instances = await session.client.list(INSTANCE, session.namespace, labels=labels)
    return Observed(workload, deployments, instances)


async def observe(session: Session, name: str, uid: str) -> Observed:
    """Read the workload, then its parts; ``assess_rollout`` explains the order."""
    workload: Workload | None
    try:
        workload = await session.client.get(WORKLOAD, Ref(session.namespace, name))
    except NotFound:
        workload = None
    if workload is not None and workload.metadata.uid != uid:
        workload = None
    labels = {WORKLOAD_UID: uid}
    deployments = await session.client.list(DEPLOYMENT, session.namespace, labels=labels)
    instances = await session.client.list(INSTANCE, session.namespace, labels=labels)
    return Observed(workload, deployments, instances)


def belongs_to(obj: ApiObject, uid: str) -> bool:
    """Return True if the object is the workload with this uid, or part of it."""
    return obj.metadata.uid == uid or obj.metadata.labels.get(WORKLOAD_UID) == uid


# --- The owner of an instance
# Labels take precedence over its deployment, which is found by name: a label, or the name of the
# instance without its ordinal. A uid is not used, because it differs on each plane.


UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, order=True)
class InstanceOwner:
    """Workload, placement and city of an instance, or ``UNKNOWN``."""

    workload: str
    placement: str
    city: str


def has_owner_labels(instance: Instance) -> bool:
    """Return True if the labels suffice, so that its deployment need not be read."""
    labels = instance.metadata.labels
    return all(labels.get(key) for key in (WORKLOAD_NAME, PLACEMENT_NAME, CITY_CODE))


def instance_owner(
    instance: Instance, deployments: Mapping[str, WorkloadDeployment] | None = None
) -> InstanceOwner:
    """Return the owner. ``deployments`` are by name; a label takes precedence over them."""
    labels = instance.metadata.labels
    found = (deployments or {}).get(deployment_of(instance.metadata.name, labels))
    spec = found.spec if found else None
    city = labels.get(CITY_CODE) or (spec.city_code if spec else "")
    return InstanceOwner(
        workload=labels.get(WORKLOAD_NAME) or (spec.workload_ref.name if spec else UNKNOWN),
        placement=labels.get(PLACEMENT_NAME) or (spec.placement_name if spec else UNKNOWN),
        city=normalize_city(city) or UNKNOWN,
    )


def by_name(deployments: Sequence[WorkloadDeployment]) -> dict[str, WorkloadDeployment]:
    return {deployment.metadata.name: deployment for deployment in deployments}
