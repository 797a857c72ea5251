"""The pods of a cell that is a real cluster, and what happens in them, through a client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from urllib.parse import urlencode

from datum_compute.api.core import POD, Pod
from datum_compute.api.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Unreachable,
)
from datum_compute.api.gateway import PROTOCOL, ExecRequest
from datum_compute.api.meta.codec import JsonObject, from_json
from datum_compute.api.meta.objects import Ref
from datum_compute.client.client import Client
from datum_compute.drivers.driver import DriverError, PermanentError, TransientError
from datum_compute.drivers.pods.driver import PodEvent
from datum_compute.drivers.pods.pod_spec import POD_LABELS
from datum_compute.drivers.queries import ExecSession
from datum_compute.gateway.cells import RemoteExecution


class ClientPods:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(self, body: JsonObject) -> Pod | None:
        try:
            with _in_our_words():
                return from_json(await self._client.create_plain(POD, body), Pod)
        except _There:
            return None

    async def get(self, namespace: str, name: str) -> Pod | None:
        try:
            with _in_our_words():
                return await self._client.get(POD, Ref(namespace, name))
        except _Gone:
            return None

    async def delete(self, pod: Pod, *, at_once: bool = False) -> None:
        ref, uid = Ref(pod.metadata.namespace, pod.metadata.name), pod.metadata.uid
        try:
            with _in_our_words():
                await self._client.delete(POD, ref, uid=uid, grace_s=0 if at_once else None)
        except _Gone:
            return

    async def list(self) -> tuple[list[Pod], str]:
        with _in_our_words():
            found = await self._client.list(POD, labels=POD_LABELS)
            return found.items, found.version

    async def watch(self, since: str) -> AsyncGenerator[PodEvent, None]:
        with _in_our_words():
            async with aclosing(self._client.watch(POD, since, labels=POD_LABELS)) as events:
                async for event in events:
                    if event.object is not None:
                        yield PodEvent(event.object, is_deleted=event.type == "DELETED")


class ClientInsides:
    """The transport of ``client`` must be one that can leave HTTP."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list_pods(self, namespace: str, labels: Mapping[str, str]) -> list[Pod]:
        with _in_our_words():
            return (await self._client.list(POD, namespace, labels={**POD_LABELS, **labels})).items

    async def log(self, pod: Pod, query: Mapping[str, str]) -> bytes:
        try:
            with _in_our_words():
                return await self._client.fetch(_part(pod, "log"), query)
        except (_Gone, _TooEarly):
            return b""

    async def metrics(self, pod: Pod) -> JsonObject | None:
        ref = pod.metadata
        path = f"{_METRICS}/namespaces/{ref.namespace}/pods/{ref.name}"
        try:
            return await self._client.ask(path)
        except NotFound as error:
            if ref.name in error.message:
                return None
            raise DriverError(_NO_METRICS) from error
        except (ApiError, Unreachable) as error:
            raise TransientError(str(error)) from error

    async def execute(self, pod: Pod, wish: ExecRequest) -> ExecSession:
        words = [("command", word) for word in wish.command]
        streams = {"stdin": wish.stdin, "stdout": True, "stderr": not wish.tty, "tty": wish.tty}
        chosen = [(name, "true") for name, wanted in streams.items() if wanted]
        query = urlencode([*words, ("container", wish.container), *chosen])
        with _in_our_words():
            path = f"{_part(pod, 'exec')}?{query}"
            return RemoteExecution(await self._client.websocket(path, PROTOCOL))


_METRICS = "/apis/metrics.k8s.io/v1beta1"
_NO_METRICS = "its cluster measures nothing: it serves no metrics.k8s.io (metrics-server does)"


def _part(pod: Pod, part: str) -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}/{part}"


class _There(TransientError):
    """One of the name, or another than the one that was meant."""


class _Gone(TransientError):
    """It is not there."""


class _TooEarly(TransientError):
    """It has not begun yet."""


@contextmanager
def _in_our_words() -> Iterator[None]:
    try:
        yield
    except AlreadyExists as error:
        raise _There(error.message) from error
    except (NotFound, Conflict) as error:
        raise _Gone(error.message) from error
    except BadRequest as error:
        raise _TooEarly(error.message) from error
    except (Invalid, Forbidden) as error:
        # A pod that the cluster refuses; it is asked again now and then, as roles and quota change.
        raise PermanentError(f"the cluster refuses the pod: {error.message}") from error
    except (ApiError, Unreachable) as error:
        raise TransientError(str(error)) from error
