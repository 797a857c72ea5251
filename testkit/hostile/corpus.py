"""All hostile requests. Add new ones to ``REQUESTS`` of a module in this package."""

from __future__ import annotations

from testkit.hostile import (
    access_rules,
    definitions,
    documents,
    json_patches,
    metadata,
    process_input,
    selectors,
    yaml_bodies,
)
from testkit.hostile.request import HostileRequest

CORPUS: tuple[HostileRequest, ...] = (
    *access_rules.REQUESTS,
    *definitions.REQUESTS,
    *documents.REQUESTS,
    *json_patches.REQUESTS,
    *metadata.REQUESTS,
    *process_input.REQUESTS,
    *selectors.REQUESTS,
    *yaml_bodies.REQUESTS,
)
