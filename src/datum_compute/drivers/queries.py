"""What a cell says of what runs its instances: which driver, whose engine, and does it answer."""
# MERGED-DOC """A command that runs in a machine, as whoever watches over it sees it."""

from __future__ import annotations

from typing import Literal, Protocol

from datum_compute.api.codec import ApiStruct
from datum_compute.drivers.driver import DriverError


class NotRunning(DriverError):
    """The machine is there and nothing runs in it now."""


class NoSuchContainer(DriverError):
    """The machine has no container of that name."""


class ExecSession(Protocol):
    """Messages of ``api/remotecommand.py``, both ways."""

    async def receive(self) -> bytes | None:
        """The next message of the process; None after the one that said how it ended."""
        ...

    async def send(self, message: bytes) -> None: ...

    async def aclose(self) -> None:
        """Let go. A process that still runs is ended: nobody could reach it any more."""
        ...


class DriverReport(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """``words`` are the engine's name and version, or why it does not answer; ``why`` is how the
    driver was chosen; ``without_init`` counts containers that were to have an init process and run
    without, because the engine has none."""

    driver: str
    why: str = ""
    engine: str = ""
    answers: bool = True
    words: str = ""
    without_init: int = 0


SIMULATED = DriverReport(driver="simulated")

ImageOutcome = Literal["found", "missing", "denied", "unknown"]


class ImageCheck(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """``words`` are the registry's own, or why nobody knows."""

    outcome: ImageOutcome
    words: str = ""
    digest: str = ""


class Usage(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """Of all containers together, over the last moment."""

    cpu_millicores: int = 0
    memory_mebibytes: int = 0
    memory_limit_mebibytes: int = 0
    asleep: bool = False


class MachineEvent(ApiStruct, frozen=True, kw_only=True):
    at: str
    text: str


class CrashReport(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """``planned``: it was asked to end, as a rollout does; else it ended by itself, or was ended
    for a reason that the message gives."""

    ended_at: str
    message: str
    planned: bool = False
    uid: str = ""
    container: str = ""
    started_at: str = ""
    exit_code: int | None = None
    out_of_memory: bool = False
    restarts: int = 0
    lines: list[str] = []
    probes: dict[str, str] = {}  # the last answer to each
    moments: list[MachineEvent] = []


class CrashReportList(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """Those of one instance, the last one last."""

    items: list[CrashReport]
