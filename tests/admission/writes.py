"""Workloads and what rules find in them, for tests of single rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.admission.context_rules import Findings
from datum_compute.admission.findings import AdmissionWarning, Finding
from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject


def findings(found: Iterable[Finding]) -> Findings:
    every = list(found)
    return Findings(
        tuple(f for f in every if isinstance(f, Cause)),
        tuple(f.text for f in every if isinstance(f, AdmissionWarning)),
    )


def in_cities(*placements: tuple[str, ...]) -> JsonObject:
    """A workload with a placement for each group of cities."""
    return {
        "metadata": {"name": "web"},
        "spec": {
            "placements": [
                {"name": f"p{index}", "cityCodes": list(cities)}
                for index, cities in enumerate(placements)
            ]
        },
    }


def with_template(**spec: Any) -> JsonObject:
    runtime = {"sandbox": {"containers": [{"name": "app", "image": "web:1"}]}}
    template = {"spec": {"runtime": runtime, **spec}}
    return {"metadata": {"name": "web"}, "spec": {"template": template, "placements": []}}


def on_networks(*networks: JsonObject) -> JsonObject:
    return with_template(networkInterfaces=[{"network": network} for network in networks])
