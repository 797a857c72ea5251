"""Somebody who may change grants, claims and records, which users may only read."""

from __future__ import annotations

from datum_compute.api.plane import PlaneName, path_prefix
from datum_compute.client.client import Client
from datum_compute.testing.host import HostTransport
from tests.regressions.platform import Platform


def operator(platform: Platform, plane: PlaneName) -> Client:
    transport = HostTransport(platform.host)
    return Client(transport, prefix=path_prefix(plane), token="token-of-manager", agent="operator")
