"""One container as the engine reports it when it is inspected."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.timestamps import unix_time

RunState = Literal["created", "running", "paused", "exited"]
# Any other status is "exited".
_RUN_STATES: dict[str, RunState] = {
    **dict.fromkeys(("created", "configured", "initialized"), "created"),
    **dict.fromkeys(("running", "restarting", "stopping"), "running"),
    "paused": "paused",
}
_FRACTION = re.compile(r"\.\d+")


@dataclass(frozen=True, slots=True)
class InspectedContainer:
    """Times are Unix seconds; 0 for an event that has not happened."""

    name: str
    id: str
    state: RunState
    exit_code: int | None = None
    out_of_memory: bool = False
    started_at: str = ""
    started_s: float = 0.0
    finished_s: float = 0.0
    image_id: str = ""
    addresses: tuple[str, ...] = ()

    @property
    def is_up(self) -> bool:
        return self.state in ("running", "paused")


def parse_container(name: str, response: JsonObject) -> InspectedContainer:
    """Parse the response to ``GET /containers/ID/json``."""
    status = response.get("State") or {}
    state = _RUN_STATES.get(str(status.get("Status", "")).lower(), "exited")
    started_at = str(status.get("StartedAt") or "")
    started_s = unix_time(started_at)
    return InspectedContainer(
        name=name,
        id=str(response.get("Id", "")),
        state=state,
        exit_code=int(status.get("ExitCode") or 0) if state == "exited" else None,
        out_of_memory=bool(status.get("OOMKilled")),
        started_at=_FRACTION.sub("", started_at) if started_s else "",
        started_s=started_s,
        finished_s=unix_time(str(status.get("FinishedAt") or "")),
        image_id=str(response.get("Image", "")),
        addresses=tuple(_addresses(response)),
    )


def _addresses(response: JsonObject) -> list[str]:
    networks: dict[str, Any] = (response.get("NetworkSettings") or {}).get("Networks") or {}
    return [
        str(network[field])
        for network in networks.values()
        for field in ("IPAddress", "GlobalIPv6Address")
        if network and network.get(field)
    ]
