"""Access to the pods of a cell that is a Kubernetes cluster, through the API of the cluster."""

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
    """Creates, reads, watches and deletes pods."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(self, body: JsonObject) -> Pod | None:
        try:
            with _translated_errors():
                return from_json(await self._client.create_plain(POD, body), Pod)
        except _AlreadyExists:
            return None

    async def get(self, namespace: str, name: str) -> Pod | None:
        try:
            with _translated_errors():
                return await self._client.get(POD, Ref(namespace, name))
        except _NotFound:
            return None

    async def delete(self, pod: Pod, *, at_once: bool = False) -> None:
        ref, uid = Ref(pod.metadata.namespace, pod.metadata.name), pod.metadata.uid
        try:
            with _translated_errors():
                await self._client.delete(POD, ref, uid=uid, grace_s=0 if at_once else None)
        except _NotFound:
            return

    async def list(self) -> tuple[list[Pod], str]:
        with _translated_errors():
            found = await self._client.list(POD, labels=POD_LABELS)
            return found.items, found.version

    async def watch(self, since: str) -> AsyncGenerator[PodEvent, None]:
        with _translated_errors():
            async with aclosing(self._client.watch(POD, since, labels=POD_LABELS)) as events:
                async for event in events:
                    if event.object is not None:
                        yield PodEvent(event.object, is_deleted=event.type == "DELETED")


class PodAccessClient:
    """Reads logs and usage of pods, and runs commands in them.

    The transport of ``client`` must support upgraded connections.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list_pods(self, namespace: str, labels: Mapping[str, str]) -> list[Pod]:
        with _translated_errors():
            return (await self._client.list(POD, namespace, labels={**POD_LABELS, **labels})).items

    async def log(self, pod: Pod, query: Mapping[str, str]) -> bytes:
        try:
            with _translated_errors():
                return await self._client.get_bytes(_subresource(pod, "log"), query)
        except (_NotFound, _NotStarted):
            return b""

    async def metrics(self, pod: Pod) -> JsonObject | None:
        ref = pod.metadata
        path = f"{_METRICS}/namespaces/{ref.namespace}/pods/{ref.name}"
        try:
            return await self._client.get_raw(path)
        except NotFound as error:
            if error.name:  # the API is served and has no metrics of this pod
                return None
            raise DriverError(_NO_METRICS) from error
        except (ApiError, Unreachable) as error:
            raise TransientError(str(error)) from error

    async def execute(self, pod: Pod, request: ExecRequest) -> ExecSession:
        command = [("command", word) for word in request.command]
        streams = {
            "stdin": request.stdin,
            "stdout": True,
            "stderr": not request.tty,
            "tty": request.tty,
        }
        enabled = [(name, "true") for name, is_on in streams.items() if is_on]
        query = urlencode([*command, ("container", request.container), *enabled])
        with _translated_errors():
            path = f"{_subresource(pod, 'exec')}?{query}"
            return RemoteExecution(await self._client.websocket(path, PROTOCOL))


_METRICS = "/apis/metrics.k8s.io/v1beta1"
_NO_METRICS = "the cluster does not serve metrics.k8s.io; install metrics-server"


def _subresource(pod: Pod, name: str) -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}/{name}"


class _AlreadyExists(TransientError):
    """An object of this name exists."""


class _NotFound(TransientError):
    """The object does not exist, or is another one of the same name."""


class _NotStarted(TransientError):
    """The container has not started."""


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Raise driver errors instead of API errors."""
    try:
        yield
    except AlreadyExists as error:
        raise _AlreadyExists(error.message) from error
    except (NotFound, Conflict) as error:
        raise _NotFound(error.message) from error
    except BadRequest as error:
        raise _NotStarted(error.message) from error
    except (Invalid, Forbidden) as error:
        # The driver retries a refused pod at long intervals, because roles and quota may change.
        raise PermanentError(f"the cluster refuses the pod: {error.message}") from error
    except (ApiError, Unreachable) as error:
        raise TransientError(str(error)) from error
