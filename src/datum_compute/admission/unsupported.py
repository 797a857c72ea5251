"""Fields of the public API that nothing here can carry out yet: refused by name.

Other fields that a schema does not know are dropped with a warning; these are known to mean
something, and a workload without them would not be what was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from datum_compute.api.errors import Cause
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.objects import KindInfo

_TEMPLATE = r"spec\.template\.spec\."
_SCALE = r"spec\.placements\[\d+\]\.scaleSettings\."
_UNSUPPORTED: Mapping[str, Mapping[str, str]] = {
    WORKLOAD.resource: {
        rf"{_TEMPLATE}runtime\.virtualMachine": (
            "virtual machines are not supported yet; describe containers in sandbox"
        ),
        rf"{_TEMPLATE}runtime\.class": "runtime classes are not supported yet; leave it out",
        rf"{_TEMPLATE}volumes\[\d+\]\.disk": (
            "disks are not supported yet; volumes come from a configMap or a secret"
        ),
        rf"{_TEMPLATE}networkInterfaces\[\d+\]\.networkPolicy": (
            "network policies are not enforced yet; leave it out"
        ),
        rf"{_TEMPLATE}controller": "it belongs to the platform and is not part of a template",
        rf"{_SCALE}(maxReplicas|metrics)": "autoscaling is not supported yet; set minReplicas",
    }
}


def unsupported_fields(kind: KindInfo[Any], unknown: Iterable[str]) -> dict[str, Cause]:
    """Those of the unknown fields that are refused, and why."""
    patterns = _UNSUPPORTED.get(kind.resource, {})
    return {
        path: Cause(path, "FieldValueForbidden", f"Forbidden: {why}")
        for path in unknown
        for pattern, why in patterns.items()
        if re.fullmatch(pattern, path)
    }
