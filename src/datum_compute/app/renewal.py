"""Keeps both credentials of a membership fresh. The certificate of the cell is renewed when a third
of its time is left, so that a hub may be away for long before a cell is locked out; with it the hub
gets a new token for the cell. A certificate that has ended takes a new join token."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.app.cell_membership import Membership, MembershipFiles
from datum_compute.app.certificates import BACKDATED, validity
from datum_compute.app.hubtoken import GRACE_S, HubToken
from datum_compute.app.joining import renew
from datum_compute.client.client import Client

LEFT = 1 / 3
LOOK_AT_MOST_S = 3600.0
AGAIN_S = 30.0

_log = logging.getLogger(__name__)


async def keep_renewed(
    hub: Client,
    files: MembershipFiles,
    membership: Membership,
    token: HubToken,
    unix_s: Callable[[], float],
) -> None:
    while True:
        wait_s = due_in_s(files.certificate.read_bytes(), unix_s())
        if wait_s > 0:
            await asyncio.sleep(min(wait_s, LOOK_AT_MOST_S))
            continue
        try:
            await renew(hub, files, membership, token.begin())
            old = token.settle()
            _log.info("the credentials of this cell and of the hub on it were renewed")
            left_s = due_in_s(files.certificate.read_bytes(), unix_s())
            await asyncio.sleep(min(GRACE_S, max(0.0, left_s)))
            token.dismiss(old)
        except (ApiError, Unreachable) as error:
            advice = "; it has ended: join again with a new token" if over(files, unix_s()) else ""
            _log.warning("the certificate of this cell cannot be renewed: %s%s", error, advice)
            await asyncio.sleep(AGAIN_S)


def over(files: MembershipFiles, now_s: float) -> bool:
    return validity(files.certificate.read_bytes())[1].timestamp() <= now_s


def due_in_s(certificate_pem: bytes, now_s: float) -> float:
    """How long until it should be renewed; not positive when that is now."""
    since, until = validity(certificate_pem)
    due = until - max(until - since - BACKDATED, timedelta()) * LEFT
    return (due - datetime.fromtimestamp(now_s, UTC)).total_seconds()
