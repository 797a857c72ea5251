"""What the embedded hub does in Karmada's place: policy + cluster -> binding -> work.

A binding says to which clusters an object goes; a work is the object for one cluster.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from datum_compute.api import labels
from datum_compute.api.cluster import Cluster
from datum_compute.api.clusterpropagationpolicy import ClusterPropagationPolicy
from datum_compute.api.clusterresourcebinding import ClusterResourceBinding
from datum_compute.api.codec import JsonObject, canonical, plain
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    Condition,
    Verdict,
    decided,
    find_condition,
    is_true,
    with_condition,
)
from datum_compute.api.configmap import ConfigMap
from datum_compute.api.identity import execution_namespace
from datum_compute.api.kinds import BINDING, CLUSTER_BINDING, DEPLOYMENT, WORK
from datum_compute.api.mergepatch import merge_patch
from datum_compute.api.meta import ApiObject, KindInfo, ObjectMeta, Ref, owner_reference, ref_of
from datum_compute.api.plane import HUB
from datum_compute.api.propagationpolicy import PropagationPolicy
from datum_compute.api.resourcebinding import (
    AggregatedStatusItem,
    ObjectReference,
    ResourceBinding,
    ResourceBindingSpec,
    ResourceBindingStatus,
    TargetCluster,
)
from datum_compute.api.secret import Secret
from datum_compute.api.work import Work, WorkloadTemplate, WorkSpec
from datum_compute.planning.actions import Action, Delete, PatchStatus, Plan, drop_finalizer
from datum_compute.planning.objects import plan_object, plan_status
from datum_compute.planning.selectors import cluster_selected, object_selected

Policy = PropagationPolicy | ClusterPropagationPolicy
AnyBinding = ResourceBinding | ClusterResourceBinding

APPLIED = "Applied"


def binding_kind(kind: KindInfo[Any]) -> KindInfo[Any]:
    return BINDING if kind.namespaced else CLUSTER_BINDING


def binding_name(kind: KindInfo[Any], name: str) -> str:
    return f"{name}-{kind.kind.lower()}"


def plan_binding(
    kind: KindInfo[Any],
    template: ApiObject,
    policies: Sequence[Policy],
    clusters: Iterable[Cluster],
    binding: AnyBinding | None,
    now: str,
) -> Plan:
    """``policies`` in order of precedence. An object that no policy selects (any more) keeps its
    binding, as with Karmada: policies place, only deletion removes."""
    if template.is_terminating or (binding is not None and binding.is_terminating):
        return Plan()
    policy = next((p for p in policies if _selects(p, kind, template)), None)
    if policy is None:
        return Plan()
    affinity = policy.spec.placement.cluster_affinity
    targets = sorted(
        c.metadata.name
        for c in clusters
        if not c.is_terminating and cluster_selected(affinity, c.metadata.name, c.metadata.labels)
    )
    desired = _binding(kind, template, targets)
    listed = ", ".join(targets) or "no cluster"
    actions = plan_object(HUB, binding_kind(kind), desired, binding, f"goes to {listed}")
    if binding is not None:
        status = _scheduled_status(binding, bool(targets), now)
        actions += plan_status(HUB, binding_kind(kind), binding, status) if not actions else []
    return Plan(tuple(actions))


def plan_works(
    kind: KindInfo[Any],
    binding: AnyBinding,
    template: ApiObject | None,
    works: Sequence[Work],
    now: str,
) -> Plan:
    """One Work for every target. A binding lets go as soon as its Works are told to go: a
    terminating Work is the tombstone of a copy that may still be on its cell."""
    if binding.is_terminating:
        release = drop_finalizer(HUB, binding_kind(kind), binding, labels.BINDING_FINALIZER)
        return Plan((*_removals(works), *release))
    if template is None or not _binds(binding, template):
        return Plan()
    observed = {work.metadata.namespace: work for work in works}
    actions: list[Action] = []
    for target in binding.spec.clusters:
        desired = _work(kind, binding, template, target.name)
        present = observed.pop(desired.metadata.namespace, None)
        if present is None or not present.is_terminating:
            actions += plan_object(HUB, WORK, desired, present, f"copy for {target.name}")
    actions += _removals(list(observed.values()))
    actions += _plan_report(kind, binding, template, works, now)
    return Plan(tuple(actions))


def _selects(policy: Policy, kind: KindInfo[Any], template: ApiObject) -> bool:
    return any(object_selected(s, kind, template) for s in policy.spec.resource_selectors)


def _binding(kind: KindInfo[Any], template: ApiObject, targets: Sequence[str]) -> AnyBinding:
    metadata = template.metadata
    bound = binding_kind(kind)
    binding: AnyBinding = bound.model(
        metadata=ObjectMeta(
            name=binding_name(kind, metadata.name),
            namespace=metadata.namespace,
            owner_references=[owner_reference(template, kind)],
            finalizers=[labels.BINDING_FINALIZER],
        ),
        spec=ResourceBindingSpec(
            resource=ObjectReference(
                api_version=kind.api_version,
                kind=kind.kind,
                name=metadata.name,
                namespace=metadata.namespace,
                uid=metadata.uid,
            ),
            clusters=[TargetCluster(name=name) for name in targets],
        ),
    )
    return binding


def _binds(binding: AnyBinding, template: ApiObject) -> bool:
    return binding.spec.resource.uid == template.metadata.uid


def _scheduled_status(binding: AnyBinding, placed: bool, now: str) -> ResourceBindingStatus:
    verdict = (
        Verdict(TRUE, "Success", "Binding has been scheduled successfully")
        if placed
        else Verdict(FALSE, "NoClusterFit", "No cluster matches the policy")
    )
    generation = binding.metadata.generation
    scheduled = decided("Scheduled", verdict, generation=generation, now=now)
    return ResourceBindingStatus(
        conditions=with_condition(binding.status.conditions, scheduled),
        aggregated_status=binding.status.aggregated_status,
    )


def work_name(kind: KindInfo[Any], ref: Ref) -> str:
    """Distinct over all namespaces, because the Works of a cluster share one."""
    identity = f"{kind.api_version}/{kind.kind}/{ref.namespace}/{ref.name}"
    return f"{ref.name}-{hashlib.sha256(identity.encode()).hexdigest()[:10]}"


def _work(kind: KindInfo[Any], binding: AnyBinding, template: ApiObject, cluster: str) -> Work:
    return Work(
        metadata=ObjectMeta(
            name=work_name(kind, ref_of(template)),
            namespace=execution_namespace(cluster),
            labels={labels.BINDING_ID: binding.metadata.uid},
            finalizers=[labels.EXECUTION_FINALIZER],
        ),
        spec=WorkSpec(workload=WorkloadTemplate(manifests=[_manifest(kind, template)])),
    )


def _manifest(kind: KindInfo[Any], template: ApiObject) -> JsonObject:
    """The object as a cell gets it: nothing that only has a meaning on the hub."""
    metadata = template.metadata
    manifest: JsonObject = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": plain(
            ObjectMeta(
                name=metadata.name,
                namespace=metadata.namespace,
                labels=metadata.labels,
                annotations=metadata.annotations,
            )
        ),
    }
    if kind is DEPLOYMENT:
        manifest["spec"] = canonical(getattr(template, "spec"))  # noqa: B009
    elif isinstance(template, ConfigMap | Secret):
        data = canonical(template)
        manifest |= {n: data[n] for n in ("type", "data", "binaryData") if n in data}
    return manifest


def _removals(works: Sequence[Work]) -> list[Action]:
    return [
        Delete(HUB, WORK, ref_of(work), work.metadata.uid, "no longer bound to this cluster")
        for work in works
        if not work.is_terminating
    ]


def _plan_report(
    kind: KindInfo[Any], binding: AnyBinding, template: ApiObject, works: Sequence[Work], now: str
) -> list[Action]:
    """What the cells say, on the binding and, from the single member, on the object itself."""
    items = [_reported(work) for work in sorted(works, key=lambda w: w.metadata.namespace)]
    applied = _fully_applied(binding, items, now)
    status = ResourceBindingStatus(
        conditions=with_condition(binding.status.conditions, applied), aggregated_status=items
    )
    actions = plan_status(HUB, binding_kind(kind), binding, status)
    if kind is DEPLOYMENT and len(items) == 1 and items[0].status is not None:
        observed = canonical(getattr(template, "status"))  # noqa: B009
        patch = merge_patch(observed, items[0].status)
        if patch:
            version = template.metadata.resource_version
            actions.append(
                PatchStatus(HUB, kind, ref_of(template), version, patch, "as the cell reports")
            )
    return actions


def _reported(work: Work) -> AggregatedStatusItem:
    applied = find_condition(work.status.conditions, APPLIED)
    statuses = work.status.manifest_statuses
    return AggregatedStatusItem(
        cluster_name=work.metadata.namespace.removeprefix(execution_namespace("")),
        applied=is_true(work.status.conditions, APPLIED),
        applied_message=applied.message if applied and applied.status != TRUE else "",
        status=statuses[0].status if statuses else None,
    )


def _fully_applied(
    binding: AnyBinding, items: Sequence[AggregatedStatusItem], now: str
) -> Condition:
    wanted = {target.name for target in binding.spec.clusters}
    missing = sorted(wanted - {item.cluster_name for item in items if item.applied})
    if wanted and not missing:
        verdict = Verdict(TRUE, "FullyAppliedSuccess", "All works have been applied")
    else:
        waiting = ", ".join(missing) or "a cluster"
        verdict = Verdict(FALSE, "FullyAppliedFailed", f"Waiting for {waiting}")
    generation = binding.metadata.generation
    return decided("FullyApplied", verdict, generation=generation, now=now)
