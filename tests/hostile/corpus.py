"""Every hostile request. To add one: a ``HostileRequest`` in a module here, and its list below."""

from __future__ import annotations

from tests.hostile import definitions, documents
from tests.hostile.request import HostileRequest

CORPUS: tuple[HostileRequest, ...] = (*definitions.REQUESTS, *documents.REQUESTS)
