"""A cell tells the hub that it lives: a Lease that it renews, and in the status of its Cluster its
version and what it has. The Lease is written again and again, the status only when it differs.

A real Karmada asks its members itself and writes the same: there nothing is told (``is_karmada``).
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
from datum_compute.client.client import Client
from datum_compute.server.discovery.discovery import version_info

KUBERNETES_VERSION: str = version_info()["gitVersion"]
# A Lease that was not renewed for so many heartbeats is of a cell that nobody has heard of since.
LASTS = 4

_log = logging.getLogger(__name__)


async def tell_of_own_cells(hub: Client, cells: Iterable[PlaneName]) -> None:
    """Cells of the hub's own process are of its version."""
    for cell in cells:
        with suppress(NotFound):  # somebody has removed it; the next start makes it again
            while not await _told_version(hub, Ref("", member_name(cell))):
                pass


async def _told_version(hub: Client, ref: Ref) -> bool:
    """Whether it says so now; False if somebody wrote at the same moment."""
    cluster = await hub.get(CLUSTER, ref)
    if cluster.status.kubernetes_version == KUBERNETES_VERSION:
        return True
    status, version = {"kubernetesVersion": KUBERNETES_VERSION}, cluster.metadata.resource_version
    try:
        await hub.patch_status(CLUSTER, ref, status, version=version)
    except Conflict:
        return False
    return True


async def version_of(cell: Client) -> str:
    """Of the API server of a cell; none comes from one that does not answer."""
    return str((await cell.ask("/version")).get("gitVersion", ""))


def is_karmada(cluster: JsonObject) -> bool:
    """Whether Karmada has told of the cluster: only it says what a member serves."""
    return bool((cluster.get("status") or {}).get("apiEnablements"))


class Heartbeat:
    """``allocated`` is what the cell uses at the moment, by resource; ``version`` is that of its
    API server, where that is not ours: then the hub may be Karmada's, too."""

    def __init__(
        self,
        hub: Client,
        cell: str,
        every_s: float,
        unix_s: Callable[[], float],
        allocatable: Mapping[str, str],
        allocated: Callable[[], Mapping[str, str]],
        version: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        self._version = version
        self._hub = hub
        self._cell = cell
        self._every_s = every_s
        self._unix_s = unix_s
        self._allocatable = dict(allocatable)
        self._allocated = allocated
        self._told = False  # of a hub that does not answer

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(max(1.0, self._every_s)):
                    await self._beat()
                if self._told:
                    _log.info("the hub hears this cell again")
                self._told = False
            except (ApiError, Unreachable, TimeoutError) as error:
                if not self._told:
                    _log.warning("the hub does not hear this cell: %s", str(error) or "no answer")
                self._told = True
            await asyncio.sleep(self._every_s)

    async def _beat(self) -> None:
        version = KUBERNETES_VERSION
        if self._version is not None:
            version = await self._version()
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
            duration_s = max(1, round(self._every_s * LASTS))
            spec = LeaseSpec(
                holder_identity=self._cell, lease_duration_seconds=duration_s, renew_time=renewed
            )
            metadata = ObjectMeta(namespace=ref.namespace, name=ref.name)
            await self._hub.create(LEASE, Lease(metadata=metadata, spec=spec))

    async def _report(self, version: str) -> None:
        cluster = await self._hub.get(CLUSTER, self._cluster)
        has = ResourceSummary(allocatable=self._allocatable, allocated=dict(self._allocated()))
        said = (cluster.status.kubernetes_version, cluster.status.resource_summary)
        if said == (version, has):
            return
        status = {"kubernetesVersion": version, "resourceSummary": to_json(has)}
        seen = cluster.metadata.resource_version
        await self._hub.patch_status(CLUSTER, self._cluster, status, version=seen)
