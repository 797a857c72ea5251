"""Builders for a deployment, its binding and its Work, as planes store them."""

from __future__ import annotations

from typing import Any

import msgspec

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.conditions import TRUE, ConditionValue, make_condition
from datum_compute.api.core import Namespace
from datum_compute.api.karmada import (
    Cluster,
    ManifestStatus,
    PropagationPolicy,
    ResourceBinding,
    TargetCluster,
    Work,
    WorkStatus,
)
from datum_compute.api.kinds import DEPLOYMENT
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.api.planes import cell_plane
from datum_compute.planning.federation.hub_namespaces import plan_policies
from datum_compute.planning.karmada.bindings import plan_binding, plan_works
from datum_compute.planning.plan import Create
from testkit.builders import NOW, a_deployment

CELL = cell_plane("dfw")


HOME = Namespace(metadata=ObjectMeta(name="ns-u", labels={labels.UPSTREAM_CLUSTER: "cluster-x"}))


def stored(obj: Any, uid: str, **metadata: object) -> Any:
    """Return the object as a plane stores it."""
    changed = msgspec.structs.replace(
        obj.metadata, uid=uid, resource_version="5", generation=1, **metadata
    )
    return msgspec.structs.replace(obj, metadata=changed)


def a_template(city: str = "DFW", **metadata: object) -> WorkloadDeployment:
    bare = a_deployment(city=city, finalizers=())
    template: WorkloadDeployment = stored(
        bare, "template-uid", namespace="ns-u", labels={labels.TOPOLOGY_CITY: city}, **metadata
    )
    return template


def a_cluster(name: str, city: str) -> Cluster:
    return Cluster(metadata=ObjectMeta(name=name, labels={labels.TOPOLOGY_CITY: city}))


def city_policies(*templates: WorkloadDeployment) -> list[PropagationPolicy]:
    creates = plan_policies(HOME, templates, [], None).actions
    return [
        a.object
        for a in creates
        if isinstance(a, Create) and isinstance(a.object, PropagationPolicy)
    ]


def a_binding(*clusters: str, terminating: bool = False) -> ResourceBinding:
    (create,) = plan_binding(
        DEPLOYMENT, a_template(), city_policies(a_template()), [], None, NOW
    ).actions
    assert isinstance(create, Create)
    binding: ResourceBinding = stored(
        create.object, "binding-uid", deletion_timestamp=NOW if terminating else None
    )
    spec = msgspec.structs.replace(binding.spec, clusters=[TargetCluster(name=c) for c in clusters])
    return msgspec.structs.replace(binding, spec=spec)


def a_work(*, status: dict[str, Any] | None = None, terminating: bool = False) -> Work:
    (create, *_) = plan_works(DEPLOYMENT, a_binding("dfw"), a_template(), [], NOW).actions
    assert isinstance(create, Create)
    work: Work = stored(create.object, "work-uid", deletion_timestamp=NOW if terminating else None)
    if status is None:
        return work
    applied = make_condition(
        "Applied", ConditionValue(TRUE, "AppliedSuccessful", ""), generation=1, now=NOW
    )
    reported = WorkStatus(conditions=[applied], manifest_statuses=[ManifestStatus(status=status)])
    return msgspec.structs.replace(work, status=reported)
