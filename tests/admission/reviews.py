"""AdmissionReviews as an API server sends them."""

from __future__ import annotations

from typing import Any

from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo

ANN = {
    "username": "ann",
    "uid": "42",
    "groups": ["dev", "system:authenticated"],
    "extra": {"iam.miloapis.com/parent-type": ["Project"], "scopes": ["a", "b"]},
}


def review(
    obj: JsonObject | None,
    old: JsonObject | None = None,
    *,
    kind: KindInfo[Any] = WORKLOAD,
    user: JsonObject | None = None,
    **more: Any,
) -> JsonObject:
    request = {
        "uid": "review-1",
        "resource": {"group": kind.group, "version": kind.version, "resource": kind.plural},
        "operation": "CREATE" if old is None else "UPDATE",
        "namespace": "default",
        "userInfo": user or ANN,
        "object": obj,
        "oldObject": old,
        **more,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
