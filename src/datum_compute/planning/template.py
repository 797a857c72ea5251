"""The identity of a template: equal templates have equal hashes, whoever wrote them."""

from __future__ import annotations

from datum_compute.api.codec import canonical_hash
from datum_compute.api.instance import InstanceTemplate


def template_hash(template: InstanceTemplate) -> str:
    """Over template spec and metadata; fields equal to their default do not count."""
    return canonical_hash(template)[:32]
