"""Builders of the objects that commands read, with the fields that a test sets."""

from __future__ import annotations

from typing import Any

from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import Instance
from datum_compute.api.compute.workload import Workload
from datum_compute.api.labels import CITY_CODE, PLACEMENT_NAME, WORKLOAD_UID
from datum_compute.api.meta.codec import JsonObject, from_json
from datum_compute.api.networking.location import LocationBinding

UID = "uid-web"


def template(image: str = "web:1") -> JsonObject:
    return {"spec": {"runtime": {"sandbox": {"containers": [{"name": "app", "image": image}]}}}}


def condition(
    type_: str, status: str, reason: str, message: str = "", *, since: str = ""
) -> JsonObject:
    found = {"type": type_, "status": status, "reason": reason, "message": message}
    return {**found, "lastTransitionTime": since} if since else found


def workload_spec(*cities: str, minimum: int = 1, placement: str = "default") -> JsonObject:
    settings = {"minReplicas": minimum}
    return {
        "template": template(),
        "placements": [{"name": placement, "cityCodes": list(cities), "scaleSettings": settings}],
    }


def workload(
    *cities: str, generation: int = 1, observed: int = 1, minimum: int = 1, **status: Any
) -> Workload:
    return from_json(
        {
            "metadata": {"name": "web", "uid": UID, "generation": generation},
            "spec": workload_spec(*cities, minimum=minimum),
            "status": {"observedGeneration": observed, **status},
        },
        Workload,
    )


def deployment(
    city: str,
    counts: tuple[int, int, int, int] = (1, 1, 1, 1),
    *,
    placement: str = "default",
    generation: int = 1,
    observed: int = 1,
    available: JsonObject | None = None,
    available_replicas: int | None = None,
    min_ready_s: int | None = None,
    terminating: bool = False,
    name: str = "",
) -> WorkloadDeployment:
    """``counts`` are updated, ready, replicas and desired; a cell of an older release does not
    report ``available_replicas``."""
    updated, ready, replicas, desired = counts
    settings: JsonObject = {"minReplicas": 1}
    if min_ready_s is not None:
        settings["minReadySeconds"] = min_ready_s
    metadata: JsonObject = {
        "name": name or f"web-{placement}-{city.lower()}",
        "uid": f"uid-{placement}-{city}",
        "generation": generation,
        "labels": {WORKLOAD_UID: UID, PLACEMENT_NAME: placement, CITY_CODE: city},
    }
    if terminating:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return from_json(
        {
            "metadata": metadata,
            "spec": {
                "workloadRef": {"name": "web", "uid": UID},
                "placementName": placement,
                "cityCode": city,
                "template": template(),
                "scaleSettings": settings,
            },
            "status": {
                **({} if available_replicas is None else {"availableReplicas": available_replicas}),
                "observedGeneration": observed,
                "updatedReplicas": updated,
                "readyReplicas": ready,
                "replicas": replicas,
                "desiredReplicas": desired,
                "conditions": [available] if available else [],
            },
        },
        WorkloadDeployment,
    )


def instance(
    name: str, city: str, ready: JsonObject | None = None, *, placement: str = "default"
) -> Instance:
    return from_json(
        {
            "metadata": {
                "name": name,
                "labels": {WORKLOAD_UID: UID, PLACEMENT_NAME: placement, CITY_CODE: city},
            },
            "spec": template()["spec"],
            "status": {"conditions": [ready] if ready else []},
        },
        Instance,
    )


def binding(city: str) -> LocationBinding:
    spec = {
        "locationRef": {"name": city.lower()},
        "locationClassName": "datum-managed",
        "topology": {"topology.datum.net/city-code": city},
    }
    return from_json({"metadata": {"name": city.lower()}, "spec": spec}, LocationBinding)
