"""Values that drivers return to queries about machines: usage, crash reports, exec sessions.

Most of them are sent to clients as JSON, so their field names are part of the API.
"""

from __future__ import annotations

from typing import Literal, Protocol

from datum_compute.api.meta.codec import ApiStruct
from datum_compute.drivers.driver import DriverError


class NotRunning(DriverError):
    """The machine exists, and its container does not run."""


class NoSuchContainer(DriverError):
    """The machine has no container of that name."""


class ExecSession(Protocol):
    """A command that runs in a container. Messages are those of ``api/gateway.py``."""

    async def receive(self) -> bytes | None:
        """Return the next message of the process; None after the one with its exit code."""
        ...

    async def send(self, message: bytes) -> None: ...

    async def aclose(self) -> None:
        """Close the session, and end the process if it still runs: no client can reach it."""
        ...


class DriverReport(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """Which driver a cell uses, and the state of its engine.

    ``words`` are name and version of the engine, or why it does not respond. ``why`` is how the
    driver was chosen. ``without_init`` counts the containers that should have an init process and
    run without one, because the engine has none.
    """

    driver: str
    why: str = ""
    engine: str = ""
    answers: bool = True
    words: str = ""
    without_init: int = 0


SIMULATED = DriverReport(driver="simulated")

ImageOutcome = Literal["found", "missing", "denied", "unknown"]


class ImageCheck(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """``words`` are the registry's message, or why the result is unknown."""

    outcome: ImageOutcome
    words: str = ""
    digest: str = ""


class Usage(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """Current usage of all containers of a machine together."""

    cpu_millicores: int = 0
    memory_mebibytes: int = 0
    memory_limit_mebibytes: int = 0
    asleep: bool = False


class MachineEvent(ApiStruct, frozen=True, kw_only=True):
    at: str
    text: str


class CrashReport(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """How a machine ended.

    ``planned``: its removal was requested, for example by a rollout. Otherwise a process exited, or
    the driver stopped it for the reason in ``message``. ``template_hash`` is that of the instance
    template, and ``workload_uid`` that of its workload; both are empty if an earlier release
    started the machine.
    """

    ended_at: str
    message: str
    planned: bool = False
    uid: str = ""
    template_hash: str = ""
    workload_uid: str = ""
    container: str = ""
    started_at: str = ""
    exit_code: int | None = None
    out_of_memory: bool = False
    restarts: int = 0
    lines: list[str] = []
    probes: dict[str, str] = {}  # the last result of each
    moments: list[MachineEvent] = []


class CrashReportList(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """The reports of one instance, oldest first."""

    items: list[CrashReport]
