"""Heartbeat of a cell: it renews a Lease on the hub, and reports version and capacity.

The Lease is renewed at every heartbeat. The status of the Cluster is written only if it differs.
A Karmada hub probes its members and writes the same status, so nothing is reported to it
(``is_karmada``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from datum_compute.api.core import Lease, LeaseSpec
from datum_compute.api.errors import ApiError, Conflict, NotFound, Unreachable
from datum_compute.api.karmada import CREDENTIALS_NAMESPACE, ResourceSummary
from datum_compute.api.kinds import CLUSTER, LEASE
from datum_compute.api.meta.codec import JsonObject, to_json
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import PlaneName, member_name
from datum_compute.app.settings.settings import HeartbeatSettings
from datum_compute.client.client import Client
from datum_compute.server.discovery.discovery import version_info

KUBERNETES_VERSION: str = version_info()["gitVersion"]
# The Lease expires after this many missed heartbeats.
LEASE_HEARTBEATS = 4

_log = logging.getLogger(__name__)


async def report_local_cells(hub: Client, cells: Iterable[PlaneName]) -> None:
    """Report the version of the cells of the hub's own process."""
    for cell in cells:
        with suppress(NotFound):  # the Cluster was deleted; the next start creates it again
            while not await _report_version(hub, Ref("", member_name(cell))):
                pass


async def _report_version(hub: Client, ref: Ref) -> bool:
    """Return False if a concurrent write prevented the report."""
    cluster = await hub.get(CLUSTER, ref)
    if cluster.status.kubernetes_version == KUBERNETES_VERSION:
        return True
    status, version = {"kubernetesVersion": KUBERNETES_VERSION}, cluster.metadata.resource_version
    try:
        await hub.patch_status(CLUSTER, ref, status, version=version)
    except Conflict:
        return False
    return True


async def read_version(cell: Client) -> str:
    """Return the version of the API server of a cell."""
    return str((await cell.get_raw("/version")).get("gitVersion", ""))


def is_karmada(cluster: JsonObject) -> bool:
    """Return True if Karmada has written the status: only Karmada reports served API groups."""
    return bool((cluster.get("status") or {}).get("apiEnablements"))


class Heartbeat:
    """Sends the heartbeats of a cell to its hub.

    ``allocated`` returns the current usage of the cell by resource. ``read_api_version`` returns
    the version of an API server that is not ours; the hub may then be Karmada.
    """

    def __init__(
        self,
        hub: Client,
        cell: str,
        settings: HeartbeatSettings,
        unix_s: Callable[[], float],
        allocated: Callable[[], Mapping[str, str]],
        read_api_version: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        self._read_api_version = read_api_version
        self._hub = hub
        self._cell = cell
        self._every_s = settings.every_s
        self._unix_s = unix_s
        self._allocatable = dict(settings.capacity)
        self._allocated = allocated
        self._is_failing = False

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(max(1.0, self._every_s)):
                    await self._beat()
                if self._is_failing:
                    _log.info("sending heartbeats to the hub again")
                self._is_failing = False
            except (ApiError, Unreachable, TimeoutError) as error:
                if not self._is_failing:
                    _log.warning("cannot send heartbeats to the hub: %s", str(error) or "timeout")
                self._is_failing = True
            await asyncio.sleep(self._every_s)

    async def _beat(self) -> None:
        version = KUBERNETES_VERSION
        if self._read_api_version is not None:
            version = await self._read_api_version()
            if is_karmada(await self._hub.get_plain(CLUSTER, self._cluster)):
                return
        await self._renew()
        await self._report(version)

    @property
    def _cluster(self) -> Ref:
        return Ref("", self._cell)

    async def _renew(self) -> None:
        renewed = datetime.fromtimestamp(self._unix_s(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        ref = Ref(CREDENTIALS_NAMESPACE, self._cell)
        try:
            await self._hub.patch(LEASE, ref, {"spec": {"renewTime": renewed}})
        except NotFound:
            duration_s = max(1, round(self._every_s * LEASE_HEARTBEATS))
            spec = LeaseSpec(
                holder_identity=self._cell, lease_duration_seconds=duration_s, renew_time=renewed
            )
            metadata = ObjectMeta(namespace=ref.namespace, name=ref.name)
            await self._hub.create(LEASE, Lease(metadata=metadata, spec=spec))

    async def _report(self, version: str) -> None:
        cluster = await self._hub.get(CLUSTER, self._cluster)
        current = ResourceSummary(allocatable=self._allocatable, allocated=dict(self._allocated()))
        reported = (cluster.status.kubernetes_version, cluster.status.resource_summary)
        if reported == (version, current):
            return
        status = {"kubernetesVersion": version, "resourceSummary": to_json(current)}
        observed = cluster.metadata.resource_version
        await self._hub.patch_status(CLUSTER, self._cluster, status, version=observed)
