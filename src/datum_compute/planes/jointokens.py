"""Join tokens that nobody can use any more leave the hub a day after they have expired."""

from __future__ import annotations

from datum_compute.api.errors import Conflict, NotFound
from datum_compute.api.kinds import JOIN_TOKEN
from datum_compute.api.meta import ref_of
from datum_compute.api.timestamps import parse_timestamp
from datum_compute.client.client import Client

KEPT_S = 24 * 3600.0


async def expire_join_tokens(hub: Client, now_s: float) -> None:
    for token in (await hub.list(JOIN_TOKEN)).items:
        if parse_timestamp(token.spec.expires_at) + KEPT_S < now_s:
            try:
                await hub.delete(JOIN_TOKEN, ref_of(token), uid=token.metadata.uid)
            except (NotFound, Conflict):
                continue
