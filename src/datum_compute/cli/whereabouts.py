"""Whose an instance is and where: labels first, then its deployment by name. Never by uid, which
differs on every plane.

The deployment's name is a label, or the name of the instance without its ordinal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import Instance
from datum_compute.api.labels import CITY_CODE, PLACEMENT_NAME, WORKLOAD_NAME
from datum_compute.api.planes import deployment_of, normalized_city

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, order=True)
class Whereabouts:
    """Unknown parts say so."""

    workload: str
    placement: str
    city: str


def is_labelled(instance: Instance) -> bool:
    """Whether the instance says all of it itself, so that nobody else has to be asked."""
    labels = instance.metadata.labels
    return all(labels.get(key) for key in (WORKLOAD_NAME, PLACEMENT_NAME, CITY_CODE))


def whereabouts(
    instance: Instance, deployments: Mapping[str, WorkloadDeployment] | None = None
) -> Whereabouts:
    """``deployments`` by name; each label wins over what they say."""
    labels = instance.metadata.labels
    found = (deployments or {}).get(deployment_of(instance.metadata.name, labels))
    spec = found.spec if found else None
    city = labels.get(CITY_CODE) or (spec.city_code if spec else "")
    return Whereabouts(
        workload=labels.get(WORKLOAD_NAME) or (spec.workload_ref.name if spec else UNKNOWN),
        placement=labels.get(PLACEMENT_NAME) or (spec.placement_name if spec else UNKNOWN),
        city=normalized_city(city) or UNKNOWN,
    )


def by_name(deployments: Sequence[WorkloadDeployment]) -> dict[str, WorkloadDeployment]:
    return {deployment.metadata.name: deployment for deployment in deployments}
