"""Where the gateway is found on a plane, and what it says of instances that nobody runs."""

from __future__ import annotations

from urllib.parse import quote

from datum_compute.api.meta.codec import ApiStruct, DecodeError, JsonObject, decode, encode

ROOT = "/gateway/v1alpha"
# In the answer of a gateway that has nothing of an instance, as opposed to no gateway at all.
NOT_HERE = "no cell runs it, or has run it within a day"
# Of a simulated machine, which only pretends.
NO_PROCESS = "the driver of its cell runs no processes"

# Where images are fetched by nodes that nobody can ask.
NO_REGISTRY = "the cluster of its cell fetches images itself; nothing here can ask a registry"

# Where planes are API servers of others, managers serve the gateway. That of a cell is named by an
# annotation of its Cluster (a URL, below which ROOT is), and who signed its certificate by a key of
# the Secret that is for the cell; that of a project by a ConfigMap which everybody there may read.
GATEWAY = "compute.datumapis.com/gateway"
GATEWAY_AUTHORITY = "gatewayCaBundle"
NOTICE_NAMESPACE, NOTICE_NAME = "kube-public", "compute-gateway"
NOTICE_URL, NOTICE_AUTHORITY = "url", "ca.crt"


def instance_path(namespace: str, name: str, what: str) -> str:
    return f"{ROOT}/namespaces/{quote(namespace, safe='')}/instances/{quote(name, safe='')}/{what}"


def drivers_path(namespace: str) -> str:
    """Where it is asked what runs the instances of the cells."""
    return f"{ROOT}/namespaces/{quote(namespace, safe='')}/drivers"


def images_path(namespace: str) -> str:
    """Where it is asked whether an image can be had."""
    return f"{ROOT}/namespaces/{quote(namespace, safe='')}/images"


# --- A command in an instance, as messages: the channels that Kubernetes gives ``kubectl exec``
# Every message begins with one byte that names its channel. The last one comes on ``STATUS`` and
# says how the command ended, as a Kubernetes Status.


PROTOCOL = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
# No more input comes: the process reads the end of a file.
END_OF_INPUT = bytes((CLOSE, STDIN))
COMMAND_WORDS_MAX = 1000
_EXIT_CODE = "ExitCode"


class ExecWish(ApiStruct, frozen=True, kw_only=True):
    """What to run, in which container (the first if none is named), and how it is attached."""

    command: list[str]
    container: str = ""
    stdin: bool = False
    tty: bool = False


class Ending(ApiStruct, frozen=True, kw_only=True):
    """How a command ended: with an exit code, or without one, and then ``message`` says why."""

    exit_code: int | None = None
    message: str = ""


def resize_message(columns: int, rows: int) -> bytes:
    return bytes((RESIZE,)) + encode({"Width": columns, "Height": rows})


def read_size(payload: bytes) -> tuple[int, int] | None:
    """Columns and rows; None if that is no size of a terminal."""
    found = _object(payload)
    columns, rows = found.get("Width"), found.get("Height")
    if not isinstance(columns, int) or not isinstance(rows, int):
        return None
    return (columns, rows) if 0 < columns < 65536 and 0 < rows < 65536 else None


def ending_message(ending: Ending) -> bytes:
    status: JsonObject = {
        "metadata": {},
        "status": "Success" if ending.exit_code == 0 else "Failure",
    }
    if ending.exit_code is None:
        status |= {"reason": "InternalError", "message": ending.message, "code": 500}
    elif ending.exit_code:
        cause = {"reason": _EXIT_CODE, "message": str(ending.exit_code)}
        told = f"command terminated with exit code {ending.exit_code}"
        status |= {"reason": "NonZeroExitCode", "message": told, "details": {"causes": [cause]}}
    return bytes((STATUS,)) + encode(status)


def read_ending(payload: bytes) -> Ending:
    found = _object(payload)
    if found.get("status") == "Success":
        return Ending(exit_code=0)
    details = found.get("details")
    causes = details.get("causes", []) if isinstance(details, dict) else []
    for cause in causes if isinstance(causes, list) else []:
        code = cause.get("message", "") if isinstance(cause, dict) else ""
        if cause.get("reason") == _EXIT_CODE and str(code).isdigit():
            return Ending(exit_code=int(code))
    return Ending(message=str(found.get("message") or "the command ended; nobody knows how"))


def _object(payload: bytes) -> JsonObject:
    try:
        found = decode(payload)
    except DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
