"""What the embedded hub does in Karmada's place: policy + cluster -> binding -> work.

A binding says to which clusters an object goes; a work is the object for one cluster.

Which objects and clusters a policy means.

What is not sent to cells: held by its policy, or by a hold of its own.

Both are operators' to set and to lift, and both are said in one field of the binding, as with
Karmada. A note on the binding says what the policy has added, so that a policy that is resumed
takes its own hold along and no other; with Karmada it takes both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    with_condition,
)
from datum_compute.api.configmap import ConfigMap
from datum_compute.api.identity import execution_namespace
from datum_compute.api.kinds import BINDING, CLUSTER_BINDING, DEPLOYMENT, WORK
from datum_compute.api.mergepatch import merge_patch
from datum_compute.api.meta import ApiObject, KindInfo, ObjectMeta, owner_reference, ref_of
from datum_compute.api.plane import HUB
from datum_compute.api.propagationpolicy import (
    ClusterAffinity,
    LabelRequirement,
    LabelSelector,
    PropagationPolicy,
    ResourceSelector,
    SuspendClusters,
    Suspension,
)
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
from datum_compute.api.workname import work_name
from datum_compute.planning.apply import plan_object, plan_status
from datum_compute.planning.federation.cells import Placing, placed_on_all, placed_on_one
from datum_compute.planning.plan import Action, Delete, PatchStatus, Plan, Wait, drop_finalizer


def labels_match(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """All requirements hold; a selector without any matches everything."""
    pairs = all(labels.get(key) == value for key, value in selector.match_labels.items())
    return pairs and all(_requirement_holds(r, labels) for r in selector.match_expressions)


def object_selected(selector: ResourceSelector, kind: KindInfo[Any], obj: ApiObject) -> bool:
    """The kind matches, and the name if one is given, else the labels."""
    if (selector.api_version, selector.kind) != (kind.api_version, kind.kind):
        return False
    if selector.namespace and selector.namespace != obj.metadata.namespace:
        return False
    if selector.name:
        return selector.name == obj.metadata.name
    if selector.label_selector is not None:
        return labels_match(selector.label_selector, obj.metadata.labels)
    return True


def cluster_selected(affinity: ClusterAffinity, name: str, labels: Mapping[str, str]) -> bool:
    if affinity.cluster_names and name not in affinity.cluster_names:
        return False
    return affinity.label_selector is None or labels_match(affinity.label_selector, labels)


def _requirement_holds(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None


Hold = frozenset[str]  # names of clusters
EVERYWHERE = "*"


def plan_hold(
    binding: ResourceBinding | ClusterResourceBinding | None, policy: Suspension | None
) -> tuple[Suspension | None, dict[str, str]]:
    """What the binding shall say, and its note of what comes from the policy."""
    present = binding.spec.suspension if binding is not None else None
    note = binding.metadata.annotations.get(labels.HELD_BY_POLICY) if binding is not None else None
    said, theirs = _hold(present), _hold(policy)
    own = said - frozenset((note or "").split(","))
    added = ",".join(sorted(theirs - own))
    # As it was written, if it says the same.
    wanted = present if said == own | theirs else _suspension(own | theirs)
    return wanted, {labels.HELD_BY_POLICY: added} if added or note else {}


def _hold(suspension: Suspension | None) -> Hold:
    if suspension is None:
        return frozenset()
    named = suspension.dispatching_on_clusters
    clusters = named.cluster_names if named is not None else []
    return frozenset([*clusters, *([EVERYWHERE] if suspension.dispatching else [])])


def _suspension(hold: Hold) -> Suspension | None:
    if not hold:
        return None
    clusters = sorted(hold - {EVERYWHERE})
    return Suspension(
        dispatching=True if EVERYWHERE in hold else None,
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
    """``policies`` in order of precedence. An object that no policy selects (any more) keeps its
    binding, as with Karmada: policies place, only deletion removes."""
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
    placing = _placing(kind, matching, binding)
    desired = _binding(kind, template, placing.targets, plan_hold(binding, policy.spec.suspension))
    listed = ", ".join(placing.targets) or "no cluster"
    actions = plan_object(HUB, binding_kind(kind), desired, binding, f"goes to {listed}")
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
    """One Work for every target. A binding lets go as soon as its Works are told to go: a
    terminating Work is the tombstone of a copy that may still be on its cell. A deployment that
    goes to another cell arrives there only when the first has confirmed that it is gone."""
    if binding.is_terminating:
        release = drop_finalizer(HUB, binding_kind(kind), binding, labels.BINDING_FINALIZER)
        return Plan((*_removals(works), *release))
    if template is None or not _binds(kind, binding, template):
        return Plan()
    wanted = [execution_namespace(target.name) for target in binding.spec.clusters]
    left = [work for work in works if work.metadata.namespace not in wanted]
    observed = {work.metadata.namespace: work for work in works}
    actions: list[Action] = []
    for target in binding.spec.clusters:
        desired = _work(kind, binding, template, target.name)
        present = observed.get(desired.metadata.namespace)
        if present is None and left and kind is DEPLOYMENT:
            actions.append(Wait(f"{_cell_of(left[0])} has not confirmed that its copy is gone"))
        elif present is None or not present.is_terminating:
            actions += plan_object(HUB, WORK, desired, present, f"copy for {target.name}")
    actions += _removals(left)
    speaking = [work for work in works if _speaks_for(binding, work)]
    actions += _plan_report(kind, binding, template, speaking, now)
    if _is_on_its_way(binding, works):
        actions = [a for a in actions if not isinstance(a, PatchStatus) or a.kind is kind]
    return Plan(tuple(actions))


def plan_unbound_works(works: Sequence[Work]) -> Plan:
    """Delete the Works of an object that is proven to have no binding and not to exist. A create
    request can arrive after the binding that needed the Work is gone. Works that were written by
    hand have no binding label and stay."""
    bound = [work for work in works if work.metadata.labels.get(labels.BINDING_ID)]
    return Plan(tuple(_removals(bound)))


def _speaks_for(binding: AnyBinding, work: Work) -> bool:
    """Whether what a Work says is about this object: not one that is on its way out, nor one that
    an object of that name has left behind."""
    own = work.metadata.labels.get(labels.BINDING_ID) == binding.metadata.uid
    return own and not work.is_terminating


def selects(policy: Policy, kind: KindInfo[Any], template: ApiObject) -> bool:
    """Whether it places the object, if no policy comes before it."""
    return any(object_selected(s, kind, template) for s in policy.spec.resource_selectors)


def _binding(
    kind: KindInfo[Any],
    template: ApiObject,
    targets: Sequence[str],
    hold: tuple[Suspension | None, dict[str, str]],
) -> AnyBinding:
    metadata = template.metadata
    suspension, note = hold
    bound = binding_kind(kind)
    binding: AnyBinding = bound.model(
        metadata=ObjectMeta(
            name=binding_name(kind, metadata.name),
            namespace=metadata.namespace,
            annotations=note,
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
            suspension=suspension,
        ),
    )
    return binding


def _binds(kind: KindInfo[Any], binding: AnyBinding, template: ApiObject) -> bool:
    """Two bindings of one object would take its Work from each other: only ours speaks for it."""
    ours = binding.metadata.name == binding_name(kind, template.metadata.name)
    return ours and binding.spec.resource.uid == template.metadata.uid


def _placing(
    kind: KindInfo[Any], matching: Sequence[Cluster], binding: AnyBinding | None
) -> Placing:
    if kind is not DEPLOYMENT:
        return placed_on_all(matching)
    bound = binding.spec.clusters if binding is not None else ()
    return placed_on_one(matching, [target.name for target in bound])


def _scheduled_status(binding: AnyBinding, verdict: Verdict, now: str) -> ResourceBindingStatus:
    generation = binding.metadata.generation
    scheduled = decided(SCHEDULED, verdict, generation=generation, now=now)
    return ResourceBindingStatus(
        conditions=with_condition(binding.status.conditions, scheduled),
        aggregated_status=binding.status.aggregated_status,
    )


def _work(kind: KindInfo[Any], binding: AnyBinding, template: ApiObject, cluster: str) -> Work:
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
            workload=WorkloadTemplate(manifests=[_manifest(kind, template)]),
            suspend_dispatching=True if suspended else None,
        ),
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
    """What the cells say, from the single member on the object itself, and on the binding. The
    object comes first: who is on record on the binding has spoken there. When nobody speaks for it
    any more, because it leaves its cell or its cell has lost it, what was said of it is nobody's
    word."""
    items = [_reported(work) for work in sorted(works, key=lambda w: w.metadata.namespace)]
    applied = _fully_applied(binding, items, now)
    status = ResourceBindingStatus(
        conditions=with_condition(binding.status.conditions, applied), aggregated_status=items
    )
    said = items[0].status if len(items) == 1 else None
    actions: list[Action] = []
    if kind is DEPLOYMENT and len(items) <= 1:
        observed = getattr(template, "status")  # noqa: B009
        wanted = canonical(type(observed)()) if said is None else said
        patch = merge_patch(canonical(observed), wanted)
        reason = "as the cell reports" if said is not None else "no cell has it"
        if patch:
            version = template.metadata.resource_version
            actions.append(PatchStatus(HUB, kind, ref_of(template), version, patch, reason))
    return [*actions, *plan_status(HUB, binding_kind(kind), binding, status)]


def _is_on_its_way(binding: AnyBinding, works: Sequence[Work]) -> bool:
    """Placed, and no cell has said anything yet, nor has anybody of them here."""
    heard = any(w.status.conditions or not _speaks_for(binding, w) for w in works)
    if heard or not binding.spec.clusters:
        return False
    return find_condition(binding.status.conditions, FULLY_APPLIED) is None


def _cell_of(work: Work) -> str:
    return work.metadata.namespace.removeprefix(execution_namespace(""))


def _reported(work: Work) -> AggregatedStatusItem:
    applied = find_condition(work.status.conditions, APPLIED)
    statuses = work.status.manifest_statuses
    return AggregatedStatusItem(
        cluster_name=_cell_of(work),
        applied=_is_applied(work, applied),
        applied_message=applied.message if applied and applied.status != TRUE else "",
        status=statuses[0].status if statuses else None,
    )


def _is_applied(work: Work, applied: Condition | None) -> bool:
    """As the Work is now: what was applied of an earlier one says nothing of it."""
    if applied is None or applied.status != TRUE:
        return False
    return applied.observed_generation >= work.metadata.generation


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
    return decided(FULLY_APPLIED, verdict, generation=generation, now=now)
