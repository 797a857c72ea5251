"""Bindings and Works of the embedded hub, which replaces Karmada.

- A policy selects objects and clusters. A binding lists the clusters that an object is scheduled
  to. A Work contains the object for one cluster.
- A policy only schedules objects. An object that no policy selects any more stays on its cells
  until it is deleted.
- The status that cells report is aggregated on the binding. For a deployment on one cell it is also
  written to the object.
- Dispatching is suspended by the policy or by an edit of the binding. Both are merged into one
  field of the binding, as in Karmada. An annotation lists the clusters that only the policy
  suspended, so that resuming the policy does not resume the others. Karmada would resume both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    Condition,
    ConditionValue,
    find_condition,
    make_condition,
    with_condition,
)
from datum_compute.api.core import ConfigMap, Secret
from datum_compute.api.karmada import (
    AggregatedStatusItem,
    Cluster,
    ClusterAffinity,
    ClusterPropagationPolicy,
    ClusterResourceBinding,
    PropagatedObject,
    PropagationPolicy,
    ResourceBinding,
    ResourceBindingSpec,
    ResourceBindingStatus,
    ResourceSelector,
    SuspendClusters,
    Suspension,
    TargetCluster,
    Work,
    WorkloadTemplate,
    WorkSpec,
)
from datum_compute.api.kinds import BINDING, CLUSTER_BINDING, DEPLOYMENT, WORK
from datum_compute.api.meta.codec import JsonObject, canonical, to_json
from datum_compute.api.meta.json_patch import build_merge_patch
from datum_compute.api.meta.label_selector import match_labels, selector_terms
from datum_compute.api.meta.objects import ApiObject, KindInfo, ObjectMeta, owner_reference, ref_of
from datum_compute.api.planes import HUB, execution_namespace, work_name
from datum_compute.planning.apply import plan_object, plan_status
from datum_compute.planning.federation.cells import (
    SchedulingResult,
    schedule_to_all,
    schedule_to_one,
)
from datum_compute.planning.plan import Action, Delete, PatchStatus, Plan, Wait, drop_finalizer
from datum_compute.planning.workload.names import is_same_workload, workload_uid_in


def object_selected(selector: ResourceSelector, kind: KindInfo[Any], obj: ApiObject) -> bool:
    """Return True if kind and namespace match, and the name or, if none is given, the labels."""
    if (selector.api_version, selector.kind) != (kind.api_version, kind.kind):
        return False
    if selector.namespace and selector.namespace != obj.metadata.namespace:
        return False
    if selector.name:
        return selector.name == obj.metadata.name
    if selector.label_selector is not None:
        return match_labels(selector_terms(selector.label_selector), obj.metadata.labels)
    return True


def cluster_selected(affinity: ClusterAffinity, name: str, labels: Mapping[str, str]) -> bool:
    if affinity.cluster_names and name not in affinity.cluster_names:
        return False
    return affinity.label_selector is None or match_labels(
        selector_terms(affinity.label_selector), labels
    )


ClusterNames = frozenset[str]
ALL_CLUSTERS = "*"


def merge_suspension(
    binding: ResourceBinding | ClusterResourceBinding | None, policy: Suspension | None
) -> tuple[Suspension | None, dict[str, str]]:
    """Return the suspension of the binding, and the annotation that records the policy's part."""
    present = binding.spec.suspension if binding is not None else None
    annotations = binding.metadata.annotations if binding is not None else {}
    recorded = annotations.get(labels.HELD_BY_POLICY)
    current, by_policy = _suspended_clusters(present), _suspended_clusters(policy)
    by_user = current - frozenset((recorded or "").split(","))
    only_by_policy = ",".join(sorted(by_policy - by_user))
    # Keep the present value if it has the same meaning.
    wanted = present if current == by_user | by_policy else _build_suspension(by_user | by_policy)
    return wanted, {labels.HELD_BY_POLICY: only_by_policy} if only_by_policy or recorded else {}


def _suspended_clusters(suspension: Suspension | None) -> ClusterNames:
    if suspension is None:
        return frozenset()
    named = suspension.dispatching_on_clusters
    clusters = named.cluster_names if named is not None else []
    return frozenset([*clusters, *([ALL_CLUSTERS] if suspension.dispatching else [])])


def _build_suspension(suspended: ClusterNames) -> Suspension | None:
    if not suspended:
        return None
    clusters = sorted(suspended - {ALL_CLUSTERS})
    return Suspension(
        dispatching=True if ALL_CLUSTERS in suspended else None,
        dispatching_on_clusters=SuspendClusters(cluster_names=clusters) if clusters else None,
    )


Policy = PropagationPolicy | ClusterPropagationPolicy
AnyBinding = ResourceBinding | ClusterResourceBinding

APPLIED = "Applied"
FULLY_APPLIED = "FullyApplied"
SCHEDULED = "Scheduled"


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
    """Plan the binding of an object. ``policies`` are in order of precedence.

    An object that no policy selects keeps its binding, as in Karmada.
    """
    if template.is_terminating or (binding is not None and binding.is_terminating):
        return Plan()
    policy = next((p for p in policies if selects(p, kind, template)), None)
    if policy is None:
        return Plan()
    affinity = policy.spec.placement.cluster_affinity
    matching = [
        c
        for c in clusters
        if not c.is_terminating and cluster_selected(affinity, c.metadata.name, c.metadata.labels)
    ]
    placing = _schedule_object(kind, matching, binding)
    desired = _build_binding(
        kind, template, placing.targets, merge_suspension(binding, policy.spec.suspension)
    )
    target_names = ", ".join(placing.targets) or "no cluster"
    actions = plan_object(HUB, binding_kind(kind), desired, binding, f"scheduled to {target_names}")
    if binding is not None:
        status = _scheduled_status(binding, placing.verdict, now)
        actions += plan_status(HUB, binding_kind(kind), binding, status) if not actions else []
    return Plan(tuple(actions))


def plan_works(
    kind: KindInfo[Any],
    binding: AnyBinding,
    template: ApiObject | None,
    works: Sequence[Work],
    now: str,
) -> Plan:
    """Plan one Work for each cluster of the binding, and the aggregated status.

    - A terminating binding is released as soon as its Works are deleted. A terminating Work is the
      tombstone of a copy that its cell may still have.
    - A deployment that moves to another cell gets its Work there only after the first cell has
      confirmed that its copy is gone.
    """
    if binding.is_terminating:
        release = drop_finalizer(HUB, binding_kind(kind), binding, labels.BINDING_FINALIZER)
        return Plan((*_delete_works(works), *release))
    if template is None or not _is_binding_of(kind, binding, template):
        return Plan()
    wanted = [execution_namespace(target.name) for target in binding.spec.clusters]
    left = [work for work in works if work.metadata.namespace not in wanted]
    observed = {work.metadata.namespace: work for work in works}
    actions: list[Action] = []
    for target in binding.spec.clusters:
        desired = _build_work(kind, binding, template, target.name)
        present = observed.get(desired.metadata.namespace)
        if present is None and left and kind is DEPLOYMENT:
            actions.append(Wait(f"{_cell_of(left[0])} has not confirmed that its copy is gone"))
        elif present is not None and not _is_work_of(present, template):
            actions += _delete_works([present])
        elif present is None or not present.is_terminating:
            actions += plan_object(HUB, WORK, desired, present, f"copy for {target.name}")
    actions += _delete_works(left)
    reporting = [
        work for work in works if _belongs_to_binding(binding, work) and _is_work_of(work, template)
    ]
    actions += _plan_status_aggregation(kind, binding, template, reporting, now)
    if _should_defer_status(binding, works):
        actions = [a for a in actions if not isinstance(a, PatchStatus) or a.kind is kind]
    return Plan(tuple(actions))


def plan_unbound_works(works: Sequence[Work]) -> Plan:
    """Delete the Works of an object, after live reads found neither the object nor its binding.

    Such a Work exists if its create request arrived after the binding was deleted. Works that were
    written by hand have no binding label and stay.
    """
    bound = [work for work in works if work.metadata.labels.get(labels.BINDING_ID)]
    return Plan(tuple(_delete_works(bound)))


def _is_work_of(work: Work, template: ApiObject) -> bool:
    """Return False for a Work with the deployment of an earlier workload.

    The cell has to remove that deployment before it gets one of the same name.
    """
    if not isinstance(template, WorkloadDeployment):
        return True
    uid = workload_uid_in(work.spec.workload.manifests[0])
    return is_same_workload(uid, template.spec.workload_ref.uid)


def _belongs_to_binding(binding: AnyBinding, work: Work) -> bool:
    """Return False for a terminating Work and for a Work of an earlier object of the same name."""
    has_label = work.metadata.labels.get(labels.BINDING_ID) == binding.metadata.uid
    return has_label and not work.is_terminating


def selects(policy: Policy, kind: KindInfo[Any], template: ApiObject) -> bool:
    """Return True if the policy selects the object."""
    return any(object_selected(s, kind, template) for s in policy.spec.resource_selectors)


def _build_binding(
    kind: KindInfo[Any],
    template: ApiObject,
    targets: Sequence[str],
    suspension_and_annotations: tuple[Suspension | None, dict[str, str]],
) -> AnyBinding:
    metadata = template.metadata
    suspension, annotations = suspension_and_annotations
    bound = binding_kind(kind)
    binding: AnyBinding = bound.model(
        metadata=ObjectMeta(
            name=binding_name(kind, metadata.name),
            namespace=metadata.namespace,
            annotations=annotations,
            owner_references=[owner_reference(template, kind)],
            finalizers=[labels.BINDING_FINALIZER],
        ),
        spec=ResourceBindingSpec(
            resource=PropagatedObject(
                api_version=kind.api_version,
                kind=kind.kind,
                name=metadata.name,
                namespace=metadata.namespace,
                uid=metadata.uid,
            ),
            clusters=[TargetCluster(name=name) for name in targets],
            suspension=suspension,
        ),
    )
    return binding


def _is_binding_of(kind: KindInfo[Any], binding: AnyBinding, template: ApiObject) -> bool:
    """Return True for the one binding of an object.

    If two bindings of an object created Works, they would overwrite each other's Works.
    """
    ours = binding.metadata.name == binding_name(kind, template.metadata.name)
    return ours and binding.spec.resource.uid == template.metadata.uid


def _schedule_object(
    kind: KindInfo[Any], matching: Sequence[Cluster], binding: AnyBinding | None
) -> SchedulingResult:
    if kind is not DEPLOYMENT:
        return schedule_to_all(matching)
    bound = binding.spec.clusters if binding is not None else ()
    return schedule_to_one(matching, [target.name for target in bound])


def _scheduled_status(
    binding: AnyBinding, verdict: ConditionValue, now: str
) -> ResourceBindingStatus:
    generation = binding.metadata.generation
    scheduled = make_condition(SCHEDULED, verdict, generation=generation, now=now)
    return ResourceBindingStatus(
        conditions=with_condition(binding.status.conditions, scheduled),
        aggregated_status=binding.status.aggregated_status,
    )


def _build_work(
    kind: KindInfo[Any], binding: AnyBinding, template: ApiObject, cluster: str
) -> Work:
    suspension = binding.spec.suspension
    suspended = suspension is not None and suspension.holds(cluster)
    return Work(
        metadata=ObjectMeta(
            name=work_name(kind, ref_of(template)),
            namespace=execution_namespace(cluster),
            labels={labels.BINDING_ID: binding.metadata.uid},
            finalizers=[labels.EXECUTION_FINALIZER],
        ),
        spec=WorkSpec(
            workload=WorkloadTemplate(manifests=[_build_manifest(kind, template)]),
            suspend_dispatching=True if suspended else None,
        ),
    )


def _build_manifest(kind: KindInfo[Any], template: ApiObject) -> JsonObject:
    """Return the object as a cell receives it, without metadata that only the hub needs."""
    metadata = template.metadata
    manifest: JsonObject = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": to_json(
            ObjectMeta(
                name=metadata.name,
                namespace=metadata.namespace,
                labels=metadata.labels,
                annotations=metadata.annotations,
            )
        ),
    }
    if isinstance(template, WorkloadDeployment):
        manifest["spec"] = _deployment_spec(template)
    elif isinstance(template, ConfigMap | Secret):
        data = canonical(template)
        manifest |= {n: data[n] for n in ("type", "data", "binaryData") if n in data}
    return manifest


def _deployment_spec(template: WorkloadDeployment) -> JsonObject:
    """Return the spec of a deployment as it is in a Work of release 0.1.0.

    That release omits the default of maxUnavailable, so a value with the same effect is omitted.
    """
    scale = template.spec.scale_settings
    scale = msgspec.structs.replace(scale, max_unavailable=scale.unavailable_limit)
    spec: JsonObject = canonical(msgspec.structs.replace(template.spec, scale_settings=scale))
    return spec


def _delete_works(works: Sequence[Work]) -> list[Action]:
    return [
        Delete(HUB, WORK, ref_of(work), work.metadata.uid, "no longer bound to this cluster")
        for work in works
        if not work.is_terminating
    ]


def _plan_status_aggregation(
    kind: KindInfo[Any], binding: AnyBinding, template: ApiObject, works: Sequence[Work], now: str
) -> list[Action]:
    """Plan the status of the object, then that of its binding.

    The order matters: the federator reads the status of the object as soon as the binding lists the
    report of a cell. When no Work reports a status, the status of the object is cleared.
    """
    items = [
        _aggregated_item(work) for work in sorted(works, key=lambda work: work.metadata.namespace)
    ]
    applied = _fully_applied(binding, items, now)
    status = ResourceBindingStatus(
        conditions=with_condition(binding.status.conditions, applied), aggregated_status=items
    )
    reported = items[0].status if len(items) == 1 else None
    actions: list[Action] = []
    if kind is DEPLOYMENT and len(items) <= 1:
        observed = getattr(template, "status")  # noqa: B009
        wanted = canonical(type(observed)()) if reported is None else reported
        patch = build_merge_patch(canonical(observed), wanted)
        reason = "reported by the cell" if reported is not None else "no cell reports a status"
        if patch:
            version = template.metadata.resource_version
            actions.append(PatchStatus(HUB, kind, ref_of(template), version, patch, reason))
    return [*actions, *plan_status(HUB, binding_kind(kind), binding, status)]


def _should_defer_status(binding: AnyBinding, works: Sequence[Work]) -> bool:
    """Return True if the binding is scheduled, but has neither reports nor a written status yet."""
    has_report = any(w.status.conditions or not _belongs_to_binding(binding, w) for w in works)
    if has_report or not binding.spec.clusters:
        return False
    return find_condition(binding.status.conditions, FULLY_APPLIED) is None


def _cell_of(work: Work) -> str:
    return work.metadata.namespace.removeprefix(execution_namespace(""))


def _aggregated_item(work: Work) -> AggregatedStatusItem:
    applied = find_condition(work.status.conditions, APPLIED)
    statuses = work.status.manifest_statuses
    return AggregatedStatusItem(
        cluster_name=_cell_of(work),
        applied=_is_applied(work, applied),
        applied_message=applied.message if applied and applied.status != TRUE else "",
        status=statuses[0].status if statuses else None,
    )


def _is_applied(work: Work, applied: Condition | None) -> bool:
    """Return True if the present generation of the Work was applied."""
    if applied is None or applied.status != TRUE:
        return False
    return applied.observed_generation >= work.metadata.generation


def _fully_applied(
    binding: AnyBinding, items: Sequence[AggregatedStatusItem], now: str
) -> Condition:
    wanted = {target.name for target in binding.spec.clusters}
    missing = sorted(wanted - {item.cluster_name for item in items if item.applied})
    if wanted and not missing:
        verdict = ConditionValue(TRUE, "FullyAppliedSuccess", "All works have been applied")
    else:
        waiting = ", ".join(missing) or "a cluster"
        verdict = ConditionValue(FALSE, "FullyAppliedFailed", f"Waiting for {waiting}")
    generation = binding.metadata.generation
    return make_condition(FULLY_APPLIED, verdict, generation=generation, now=now)
