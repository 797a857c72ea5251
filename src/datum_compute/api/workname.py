"""The name of the Work that stands for an object on a cell."""

from __future__ import annotations

import hashlib
from typing import Any

from datum_compute.api.meta.objects import KindInfo, Ref

# As Kubernetes does it: no vowels, so that no words come out.
_SAFE = "bcdfghjklmnpqrstvwxz2456789"
_FNV_OFFSET, _FNV_PRIME = 2166136261, 16777619


def work_name(kind: KindInfo[Any], ref: Ref) -> str:
    """Distinct over all namespaces, because the Works of a cluster share one."""
    identity = f"{kind.api_version}/{kind.kind}/{ref.namespace}/{ref.name}"
    return f"{ref.name}-{hashlib.sha256(identity.encode()).hexdigest()[:10]}"


def work_names(kind: KindInfo[Any], ref: Ref) -> tuple[str, str]:
    """As the embedded hub names it, and as Karmada does."""
    return work_name(kind, ref), _karmada_work_name(kind, ref)


def _karmada_work_name(kind: KindInfo[Any], ref: Ref) -> str:
    name = ref.name.replace(":", ".").lower()
    identity = "-".join(filter(None, (ref.namespace, name, kind.kind))).lower()
    digits = str(_fnv_1a(identity.encode()))
    return f"{name}-{''.join(_SAFE[ord(digit) % len(_SAFE)] for digit in digits)}"


def _fnv_1a(data: bytes) -> int:
    found = _FNV_OFFSET
    for byte in data:
        found = (found ^ byte) * _FNV_PRIME % 2**32
    return found
