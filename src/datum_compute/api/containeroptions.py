"""How a container is looked after and confined: probes, pull policy and what it may do.

The words are those of Kubernetes, so that what people know holds here. Every field has a default:
a template that says nothing about them hashes as it did before they were there.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import Port, PortName, ShortText, says

# A number, or the name of a port of the same container.
ProbePort = Port | PortName
PullPolicy = Literal["", "Always", "IfNotPresent", "Never"]
UserId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
HeaderName = Annotated[str, Meta(pattern="^[-A-Za-z0-9!#$%&'*+.^_`|~]+$", max_length=253)]
UrlPath = Annotated[str, Meta(pattern="^/[!-~]*$", max_length=1024)]

GRACE_S = 30

_Seconds = Annotated[int, Meta(ge=1, le=3600)]
_Times = Annotated[int, Meta(ge=1, le=100)]


class HttpHeader(ApiStruct, frozen=True, kw_only=True):
    """A header of a request."""

    name: Annotated[HeaderName, says("Name of the header.")]
    value: Annotated[
        Annotated[str, Meta(pattern="^[ -~]*$", max_length=1024)], says("Its value.")
    ] = ""


class HttpGet(ApiStruct, frozen=True, kw_only=True):
    """A request that must be answered with 200 to 399."""

    path: Annotated[UrlPath, says("Path of the request.")] = "/"
    port: Annotated[ProbePort, says("Port to ask, by number or by name.")]
    http_headers: Annotated[list[HttpHeader], says("Headers of the request.")] = []


class TcpSocket(ApiStruct, frozen=True, kw_only=True):
    """A connection that must be accepted."""

    port: Annotated[ProbePort, says("Port to connect to, by number or by name.")]


class ExecAction(ApiStruct, frozen=True, kw_only=True):
    """A command in the container that must end with 0."""

    command: Annotated[
        list[str], Meta(min_length=1, max_length=100), says("The command and its arguments.")
    ]


class Probe(ApiStruct, frozen=True, kw_only=True):
    """A question that is asked again and again: exactly one of httpGet, tcpSocket and exec."""

    http_get: Annotated[HttpGet | None, says("Ask over HTTP.")] = None
    tcp_socket: Annotated[TcpSocket | None, says("Ask for a connection.")] = None
    exec_: Annotated[ExecAction | None, says("Run a command.")] = field(name="exec", default=None)
    initial_delay_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=3600)], says("Seconds from the start to the first question.")
    ] = 0
    period_seconds: Annotated[_Seconds, says("Seconds between questions.")] = 10
    timeout_seconds: Annotated[_Seconds, says("Seconds until a question counts as failed.")] = 1
    success_threshold: Annotated[_Times, says("Good answers in a row after bad ones.")] = 1
    failure_threshold: Annotated[_Times, says("Bad answers in a row that count.")] = 3


class SecurityContext(ApiStruct, frozen=True, kw_only=True):
    """As whom it runs and what it may write. Privileges can only be given up, never gained."""

    run_as_user: Annotated[UserId | None, says("User to run as; else as the image says.")] = None
    run_as_group: Annotated[UserId | None, says("Group to run as; needs runAsUser.")] = None
    read_only_root_filesystem: Annotated[
        bool, says("Nothing but /tmp, /run and /dev/shm can be written.")
    ] = False


class ImageRecord(ApiStruct, frozen=True, kw_only=True):
    """What a container really runs."""

    name: Annotated[ShortText, says("Name of the container.")]
    image: Annotated[str, says("The image as it was asked for.")]
    digest: Annotated[ShortText, says("Digest that the registry gave, or the id of a local one.")]
