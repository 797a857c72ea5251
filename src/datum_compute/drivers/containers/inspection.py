"""A container as the engine shows it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from datum_compute.api.codec import JsonObject
from datum_compute.api.timestamps import unix_time

RunState = Literal["created", "running", "paused", "exited"]
_RUN_STATES: dict[str, RunState] = {
    **dict.fromkeys(("created", "configured", "initialized"), "created"),
    **dict.fromkeys(("running", "restarting", "stopping"), "running"),
    "paused": "paused",
}
_FRACTION = re.compile(r"\.\d+")


@dataclass(frozen=True, slots=True)
class InspectedContainer:
    """Times are unix seconds, 0 for never."""

    name: str
    id: str
    standing: RunState
    exit_code: int | None = None
    out_of_memory: bool = False
    started_at: str = ""
    started_s: float = 0.0
    finished_s: float = 0.0
    image_id: str = ""
    addresses: tuple[str, ...] = ()

    @property
    def is_up(self) -> bool:
        return self.standing in ("running", "paused")


def parse_container(name: str, inspected: JsonObject) -> InspectedContainer:
    state = inspected.get("State") or {}
    standing = _RUN_STATES.get(str(state.get("Status", "")).lower(), "exited")
    started = str(state.get("StartedAt") or "")
    started_s = unix_time(started)
    return InspectedContainer(
        name=name,
        id=str(inspected.get("Id", "")),
        standing=standing,
        exit_code=int(state.get("ExitCode") or 0) if standing == "exited" else None,
        out_of_memory=bool(state.get("OOMKilled")),
        started_at=_FRACTION.sub("", started) if started_s else "",
        started_s=started_s,
        finished_s=unix_time(str(state.get("FinishedAt") or "")),
        image_id=str(inspected.get("Image", "")),
        addresses=tuple(_addresses(inspected)),
    )


def _addresses(inspected: JsonObject) -> list[str]:
    networks: dict[str, Any] = (inspected.get("NetworkSettings") or {}).get("Networks") or {}
    return [
        str(network[field])
        for network in networks.values()
        for field in ("IPAddress", "GlobalIPv6Address")
        if network and network.get(field)
    ]
