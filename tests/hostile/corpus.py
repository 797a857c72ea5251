"""Every hostile request. To add one: a ``HostileRequest`` in a module here, and its list below."""

from __future__ import annotations

from tests.hostile import definitions, documents, process_input, yaml_bodies
from tests.hostile.request import HostileRequest

CORPUS: tuple[HostileRequest, ...] = (
    *definitions.REQUESTS,
    *documents.REQUESTS,
    *process_input.REQUESTS,
    *yaml_bodies.REQUESTS,
)
