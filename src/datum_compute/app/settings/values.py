"""Kinds of values that settings have: each takes the text of a flag, a variable or a file, and
refuses what it cannot be with a sentence that says what it should be."""

from __future__ import annotations

import argparse
import ipaddress
import re

from datum_compute.api.planes import PlaneName, cell_plane, plane_role, project_plane

LOOPBACK = "127.0.0.1"
_HOST = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?")

_RESOURCE = re.compile(r"[a-z][-a-z0-9./]{0,62}")
_AMOUNT = re.compile(r"[0-9]{1,15}(m|k|Ki|M|Mi|G|Gi|T|Ti)?")


def seconds_value(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to 3600")
    return seconds


def duration_value(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,7})([hms])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration such as 1440h, 90m or 30s")
    return float(int(found[1]) * {"h": 3600, "m": 60, "s": 1}[found[2]])


def count_value(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 999999999")
    return int(text)


def port_value(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError("a port is between 0 and 65535")
    return port


def cells_value(text: str) -> tuple[PlaneName, ...]:
    try:
        planes = [cell_plane(name.strip().lower()) for name in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; write for example dfw,iad") from error
    if len(set(planes)) != len(planes):
        raise argparse.ArgumentTypeError(f"{text!r} names a cell twice")
    return tuple(planes)


def plane_value(text: str) -> PlaneName:
    try:
        plane_role(PlaneName(text))
    except (AssertionError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no plane: {error}") from error
    return PlaneName(text)


def dns_label_value(text: str) -> str:
    try:
        project_plane(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def address_value(text: str) -> tuple[str, int]:
    """ADDRESS:PORT, or :PORT for every address of the machine."""
    host, _, port = text.rpartition(":")
    try:
        return str(ipaddress.ip_address(host.strip("[]") or "0.0.0.0")), port_value(port)  # noqa: S104
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not ADDRESS:PORT") from None


def is_loopback(address: tuple[str, int]) -> bool:
    """Whether only this machine reaches it."""
    return ipaddress.ip_address(address[0]).is_loopback


def host_value(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no address of a machine") from None


def names_value(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if not _HOST.fullmatch(name) and ":" not in name:
            raise argparse.ArgumentTypeError(f"{name!r} is neither a name nor an address")
    return names


def capacity_value(text: str) -> dict[str, str]:
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, amount = part.partition("=")
        if not _RESOURCE.fullmatch(name) or not equals or not _AMOUNT.fullmatch(amount):
            raise argparse.ArgumentTypeError(f"{part!r} is no capacity such as cpu=64")
        found[name] = amount
    return found
