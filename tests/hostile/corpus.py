"""All hostile requests. Add new ones to ``REQUESTS`` of a module in this package."""

from __future__ import annotations

from tests.hostile import (
    access_rules,
    cache_keys,
    definitions,
    documents,
    json_patches,
    metadata,
    process_input,
    selectors,
    yaml_bodies,
)
from tests.hostile.request import HostileRequest

CORPUS: tuple[HostileRequest, ...] = (
    *access_rules.REQUESTS,
    *cache_keys.REQUESTS,
    *definitions.REQUESTS,
    *documents.REQUESTS,
    *json_patches.REQUESTS,
    *metadata.REQUESTS,
    *process_input.REQUESTS,
    *selectors.REQUESTS,
    *yaml_bodies.REQUESTS,
)
