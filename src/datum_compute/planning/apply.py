"""Plan the writes that make an object equal to the desired one.

Labels and annotations are merged key by key, and owner references are only added, because other
writers set them too. The spec is replaced as a whole. Only a ``maxUnavailable`` that has the same
effect as the desired one stays, because releases store its default differently.
"""

from __future__ import annotations

from typing import Any

import msgspec

from datum_compute.api.compute.deployment import WorkloadDeploymentSpec
from datum_compute.api.meta.codec import (
    ApiStruct,
    JsonObject,
    canonical,
    canonical_diff_inputs,
    to_json,
)
from datum_compute.api.meta.json_patch import build_merge_patch
from datum_compute.api.meta.objects import ApiObject, KindInfo, ref_of
from datum_compute.api.planes import PlaneName
from datum_compute.planning.plan import Action, Create, Patch, PatchStatus


def plan_object(
    plane: PlaneName,
    kind: KindInfo[Any],
    desired: ApiObject,
    observed: ApiObject | None,
    reason: str,
) -> list[Action]:
    """Create the object or patch the difference. An equal object needs no action."""
    if observed is None:
        return [Create(plane, kind, desired, reason)]
    patch = _object_patch(kind, desired, observed)
    if not patch:
        return []
    patch.setdefault("metadata", {})["resourceVersion"] = observed.metadata.resource_version
    return [Patch(plane, kind, ref_of(observed), patch, reason)]


def plan_status(
    plane: PlaneName,
    kind: KindInfo[Any],
    observed: ApiObject,
    desired: ApiStruct,
    reason: str = "report",
) -> list[Action]:
    """Patch the status if it differs. The first patch contains every field, also zero counts."""
    reported = getattr(observed, "status")  # noqa: B009 - every kind that has one
    if reported == desired:
        return []
    if reported == type(reported)():
        patch = build_merge_patch({}, canonical(desired))
    else:
        patch = build_merge_patch(*canonical_diff_inputs(reported, desired))
    if not patch:
        return []
    version = observed.metadata.resource_version
    return [PatchStatus(plane, kind, ref_of(observed), version, patch, reason)]


def _object_patch(kind: KindInfo[Any], desired: ApiObject, observed: ApiObject) -> JsonObject:
    patch: JsonObject = {}
    spec, observed_spec = getattr(desired, "spec", None), getattr(observed, "spec", None)
    # The plane itself writes the spec of a built-in kind, such as Namespace.
    if spec is not None and observed_spec is not None and not kind.built_in:
        if isinstance(spec, WorkloadDeploymentSpec):
            spec = _keep_equal_unavailability(spec, observed_spec)
        spec_patch = build_merge_patch(*canonical_diff_inputs(observed_spec, spec))
        if spec_patch:
            patch["spec"] = spec_patch
    patch |= _data_patch(desired, observed)
    metadata = _metadata_patch(desired, observed)
    if metadata:
        patch["metadata"] = metadata
    return patch


def _keep_equal_unavailability(
    desired: WorkloadDeploymentSpec, observed: WorkloadDeploymentSpec
) -> WorkloadDeploymentSpec:
    """Return the desired spec with the observed maxUnavailable, if it has the same effect.

    A plane of release 0.1.0 stores the default, 1, and restores it when it is removed.
    """
    scale, limit = desired.scale_settings, observed.scale_settings.max_unavailable
    if scale.max_unavailable == limit:
        return desired
    kept = msgspec.structs.replace(scale, max_unavailable=limit)
    if kept.unavailable_limit != scale.unavailable_limit:
        return desired
    return msgspec.structs.replace(desired, scale_settings=kept)


def _data_patch(desired: ApiObject, observed: ApiObject) -> JsonObject:
    """Return the patch for kinds with data instead of a spec. Data is replaced as a whole."""
    patch: JsonObject = {}
    for field, name in (("data", "data"), ("binary_data", "binaryData")):
        old, new = getattr(observed, field, {}), getattr(desired, field, {})
        if changes := build_merge_patch(old, new) if old != new else {}:
            patch[name] = changes
    return patch


def _metadata_patch(desired: ApiObject, observed: ApiObject) -> JsonObject:
    patch: JsonObject = {}
    for name in ("labels", "annotations"):
        old = getattr(observed.metadata, name)
        changed = {k: v for k, v in getattr(desired.metadata, name).items() if old.get(k) != v}
        if changed:
            patch[name] = changed
    owner_uids = {owner.uid for owner in observed.metadata.owner_references}
    missing = [o for o in desired.metadata.owner_references if o.uid not in owner_uids]
    if missing:
        kept = [o for o in observed.metadata.owner_references if not o.controller]
        patch["ownerReferences"] = to_json([*kept, *missing])
    return patch
