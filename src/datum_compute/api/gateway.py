"""Protocol between the gateway and its clients: paths, error reasons and exec messages."""

from __future__ import annotations

from enum import StrEnum
from urllib.parse import quote

from datum_compute.api.errors import ApiError, Cause, Forbidden, NotFound
from datum_compute.api.meta.codec import ApiStruct, DecodeError, JsonObject, decode, encode

ROOT = "/gateway/v1alpha"
GROUP, INSTANCES = "compute.datumapis.com", "instances"

# If the planes are Kubernetes API servers, managers serve the gateway. An annotation of a Cluster
# contains the URL of the gateway of the cell (ROOT is below it), and a key of the Secret of the
# cell contains the CA certificate. The gateway of a project is in a ConfigMap that every user of it
# can read.
GATEWAY = "compute.datumapis.com/gateway"
GATEWAY_AUTHORITY = "gatewayCaBundle"
NOTICE_NAMESPACE, NOTICE_NAME = "kube-public", "compute-gateway"
NOTICE_URL, NOTICE_AUTHORITY = "url", "ca.crt"


# --- Reasons of a 404
# A client decides by the reason of a cause in `details.causes`. The message is for people.


class GatewayReason(StrEnum):
    """Why the gateway has no data about an instance or an image."""

    INSTANCE_NOT_RUNNING = "InstanceNotRunning"
    INSTANCES_SIMULATED = "InstancesSimulated"
    IMAGE_CHECK_NOT_SUPPORTED = "ImageCheckNotSupported"


_MESSAGES = {
    GatewayReason.INSTANCE_NOT_RUNNING: "no cell has run it within the last day",
    GatewayReason.INSTANCES_SIMULATED: "the driver of its cell is simulated: it runs no process",
    GatewayReason.IMAGE_CHECK_NOT_SUPPORTED: (
        "the cluster of its cell pulls images itself, so the gateway cannot query a registry"
    ),
}


def gateway_not_found(reason: GatewayReason, name: str = "") -> NotFound:
    """Return a 404 with a reason, about an instance if ``name`` is given."""
    message = _MESSAGES[reason]
    causes = [Cause("", reason, message)]
    if not name:
        return NotFound(message, causes=causes)
    return NotFound(
        f'{INSTANCES}.{GROUP} "{name}" not found: {message}',
        name=name,
        group=GROUP,
        kind=INSTANCES,
        causes=causes,
    )


def has_gateway_reason(error: ApiError, reason: GatewayReason) -> bool:
    return any(cause.reason == reason for cause in error.causes)


def is_missing_gateway(error: NotFound | Forbidden) -> bool:
    """Return True if a plane without a gateway sent the error.

    Such a plane responds about the path: with plain text (404), or with a Status without the kind
    of an object (403). A gateway names the kind of the object, or a GatewayReason.
    """
    return not error.kind and not error.causes


# --- Paths


def instance_path(namespace: str, name: str, what: str) -> str:
    return f"{ROOT}/namespaces/{quote(namespace, safe='')}/instances/{quote(name, safe='')}/{what}"


def drivers_path(namespace: str) -> str:
    """Return the path that lists the drivers of the cells."""
    return f"{ROOT}/namespaces/{quote(namespace, safe='')}/drivers"


def logs_path(namespace: str) -> str:
    """Return the path that lists the instances of a workload with a log, also deleted ones."""
    return f"{ROOT}/namespaces/{quote(namespace, safe='')}/logs"


def images_path(namespace: str) -> str:
    """Return the path that checks whether an image can be pulled."""
    return f"{ROOT}/namespaces/{quote(namespace, safe='')}/images"


# --- Messages of a command in an instance: the channels of ``kubectl exec``
# The first byte of each message is its channel. The last message is on ``STATUS`` and contains the
# result of the command as a Kubernetes Status.


PROTOCOL = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
# Closes stdin: the process reads the end of the file.
END_OF_INPUT = bytes((CLOSE, STDIN))
COMMAND_WORDS_MAX = 1000
_EXIT_CODE = "ExitCode"


class ExecRequest(ApiStruct, frozen=True, kw_only=True):
    """Command to run, its container (by default the first one) and its streams."""

    command: list[str]
    container: str = ""
    stdin: bool = False
    tty: bool = False


class ExecResult(ApiStruct, frozen=True, kw_only=True):
    """Exit code of a command. Without an exit code, ``message`` contains the reason."""

    exit_code: int | None = None
    message: str = ""


def resize_message(columns: int, rows: int) -> bytes:
    return bytes((RESIZE,)) + encode({"Width": columns, "Height": rows})


def read_size(payload: bytes) -> tuple[int, int] | None:
    """Return columns and rows, or None if the payload is not the size of a terminal."""
    found = _object(payload)
    columns, rows = found.get("Width"), found.get("Height")
    if not isinstance(columns, int) or not isinstance(rows, int):
        return None
    return (columns, rows) if 0 < columns < 65536 and 0 < rows < 65536 else None


def encode_exec_result(ending: ExecResult) -> bytes:
    status: JsonObject = {
        "metadata": {},
        "status": "Success" if ending.exit_code == 0 else "Failure",
    }
    if ending.exit_code is None:
        status |= {"reason": "InternalError", "message": ending.message, "code": 500}
    elif ending.exit_code:
        cause = {"reason": _EXIT_CODE, "message": str(ending.exit_code)}
        message = f"command terminated with exit code {ending.exit_code}"
        status |= {"reason": "NonZeroExitCode", "message": message, "details": {"causes": [cause]}}
    return bytes((STATUS,)) + encode(status)


def decode_exec_result(payload: bytes) -> ExecResult:
    found = _object(payload)
    if found.get("status") == "Success":
        return ExecResult(exit_code=0)
    details = found.get("details")
    causes = details.get("causes", []) if isinstance(details, dict) else []
    for cause in causes if isinstance(causes, list) else []:
        code = cause.get("message", "") if isinstance(cause, dict) else ""
        if cause.get("reason") == _EXIT_CODE and str(code).isdigit():
            return ExecResult(exit_code=int(code))
    return ExecResult(
        message=str(found.get("message") or "the command ended with an unknown result")
    )


def _object(payload: bytes) -> JsonObject:
    try:
        found = decode(payload)
    except DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
