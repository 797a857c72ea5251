"""Types of settings. Each converts the text of a flag, a variable or a file to a value.

A parse function raises ValueError with a message that names the valid form.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from datum_compute.api.planes import PlaneName, cell_plane, plane_role, project_plane

_HOST = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?")
_RESOURCE = re.compile(r"[a-z][-a-z0-9./]{0,62}")
_AMOUNT = re.compile(r"[0-9]{1,15}(m|k|Ki|M|Mi|G|Gi|T|Ti)?")
_DURATION = re.compile(r"([0-9]{1,7})([hms])")
_UNIT_S = {"h": 3600, "m": 60, "s": 1}


class ParsedText(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.4
    """A setting whose text ``parse`` converts."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:
        raise ValueError(f"{text!r} is not a number of seconds from 0 to 3600")
    return seconds


def parse_duration(text: str) -> float:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a duration such as 1440h, 90m or 30s")
    return float(int(found[1]) * _UNIT_S[found[2]])


def parse_count(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise ValueError(f"{text!r} is not a whole number from 1 to 999999999")
    return int(text)


def parse_cells(text: str) -> tuple[PlaneName, ...]:
    try:
        planes = [cell_plane(name.strip().lower()) for name in text.split(",")]
    except ValueError as error:
        raise ValueError(f"{error}; write for example dfw,iad") from error
    if len(set(planes)) != len(planes):
        raise ValueError(f"{text!r} names a cell twice")
    return tuple(planes)


def parse_plane(text: str) -> PlaneName:
    try:
        plane_role(PlaneName(text))
    except (AssertionError, ValueError) as error:
        raise ValueError(f"{text!r} is not the name of a plane: {error}") from error
    return PlaneName(text)


def parse_dns_label(text: str) -> str:
    project_plane(text)
    return text


def parse_address(text: str) -> tuple[str, int]:
    """Parse ADDRESS:PORT, or :PORT for all addresses of the machine."""
    host, _, port = text.rpartition(":")
    try:
        address = str(ipaddress.ip_address(host.strip("[]") or "0.0.0.0"))  # noqa: S104
        number = int(port)
    except ValueError:
        raise ValueError(f"{text!r} is not ADDRESS:PORT") from None
    if not 0 <= number <= 65535:
        raise ValueError(f"{text!r} is not ADDRESS:PORT: a port is a number from 0 to 65535")
    return address, number


def is_loopback(address: tuple[str, int]) -> bool:
    """Return True if only this machine can reach the address."""
    return ipaddress.ip_address(address[0]).is_loopback


def parse_host(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address") from None


def parse_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if not _HOST.fullmatch(name) and ":" not in name:
            raise ValueError(f"{name!r} is neither a host name nor an IP address")
    return names


def parse_capacity(text: str) -> dict[str, str]:
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, amount = part.partition("=")
        if not _RESOURCE.fullmatch(name) or not equals or not _AMOUNT.fullmatch(amount):
            raise ValueError(f"{part!r} is not a capacity such as cpu=64")
        found[name] = amount
    return found


FILE = click.Path(path_type=Path)
PORT = click.IntRange(0, 65535)
SECONDS = ParsedText("seconds", parse_seconds)
DURATION = ParsedText("duration", parse_duration)
COUNT = ParsedText("number", parse_count)
CELLS = ParsedText("names", parse_cells)
PLANE = ParsedText("plane", parse_plane)
DNS_LABEL = ParsedText("name", parse_dns_label)
ADDRESS = ParsedText("host:port", parse_address)
HOST = ParsedText("address", parse_host)
NAMES = ParsedText("names", parse_names)
CAPACITY = ParsedText("resource=amount", parse_capacity)
