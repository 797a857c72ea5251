"""Which objects and clusters a policy means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datum_compute.api.meta import ApiObject, KindInfo
from datum_compute.api.propagationpolicy import (
    ClusterAffinity,
    LabelRequirement,
    LabelSelector,
    ResourceSelector,
)


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
