"""What the pods driver asks of the cluster.

Whatever does not answer is a TransientError; what the cluster will never accept as it is, a
PermanentError with its words. ``app/pods.py`` does it with a client,
``testkit/fakes/pods.py`` without a cluster.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Protocol

from datum_compute.api.codec import JsonObject
from datum_compute.api.pod import Pod
from datum_compute.api.remotecommand import ExecWish
from datum_compute.drivers.execution import ExecSession


@dataclass(frozen=True, slots=True)
class PodEvent:
    pod: Pod
    gone: bool = False


class PodApi(Protocol):
    async def create(self, body: JsonObject) -> Pod | None:
        """The new pod; None if there is one of that name already."""
        ...

    async def get(self, namespace: str, name: str) -> Pod | None: ...

    async def delete(self, pod: Pod, *, at_once: bool = False) -> None:
        """Ask for the removal of that very pod; it may be gone already. At once only what is known
        to have ended: nobody waits for it to do so."""
        ...

    async def list(self) -> tuple[list[Pod], str]:
        """All pods of the driver, and the version they are of."""
        ...

    def watch(self, since: str) -> AsyncGenerator[PodEvent, None]:
        """What happens to pods of the driver after that version, for a while; raises TransientError
        when it is too long ago."""
        ...


class PodInsides(Protocol):
    """What ``inside.py`` asks: not about pods, but what happens in them."""

    async def named(self, namespace: str, labels: Mapping[str, str]) -> list[Pod]:
        """Pods of the driver with these labels, as the cluster has them now."""
        ...

    async def log(self, pod: Pod, query: Mapping[str, str]) -> bytes:
        """Lines of a container, as the cluster gives them; none before its first start."""
        ...

    async def metrics(self, pod: Pod) -> JsonObject | None:
        """What the containers of a pod use; None while nobody has measured it."""
        ...

    async def execute(self, pod: Pod, wish: ExecWish) -> ExecSession: ...
