"""Which kinds a webhook is asked about, read off the tables of rules: ours, where they have any.

Kinds of Kubernetes and of Karmada have their own rules there. The manifests in ``deploy/webhook``
are made from this (``hack/write_webhooks.py``).
"""

from __future__ import annotations

from typing import Any

from datum_compute.admission.chain import CHAIN
from datum_compute.admission.context_rules import READING
from datum_compute.admission.removing import REMOVING
from datum_compute.api.kinds import KINDS
from datum_compute.api.meta.objects import KindInfo


def validated_kinds() -> tuple[KindInfo[Any], ...]:
    return tuple(k for k in _own_kinds() if k.resource in CHAIN or k.resource in READING)


def removal_is_asked_about(kind: KindInfo[Any]) -> bool:
    return kind.resource in REMOVING


def mutated_kinds() -> tuple[KindInfo[Any], ...]:
    return tuple(k for k in _own_kinds() if k.resource in CHAIN and CHAIN[k.resource].defaults)


def hooked_kind(group: str, version: str, plural: str) -> KindInfo[Any] | None:
    place = (group, version, plural)
    found = (k for k in validated_kinds() if (k.group, k.version, k.plural) == place)
    return next(found, None)


def _own_kinds() -> list[KindInfo[Any]]:
    return [kind for kind in KINDS if not (kind.built_in or kind.partial)]
