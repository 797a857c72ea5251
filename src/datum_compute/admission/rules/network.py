"""Rules for Networks, Subnets and SubnetClaims: addresses are real, and of the right family."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any

from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject

_BITS = {"IPv4": 32, "IPv6": 128}
_NETWORKS = {"IPv4": ipaddress.IPv4Network, "IPv6": ipaddress.IPv6Network}
_ADDRESSES = {"IPv4": ipaddress.IPv4Address, "IPv6": ipaddress.IPv6Address}


def ranges_are_prefixes(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """Of a Network."""
    for field, family in (("ipv4Range", "IPv4"), ("ipv6Range", "IPv6")):
        text = new["spec"]["ipam"].get(field)
        if text is not None and not _is(_NETWORKS[family], text):
            why = f"must be an {family} prefix without host bits, such as {_EXAMPLES[family]}"
            yield _invalid(f"spec.ipam.{field}", f'"{text}"', why)


def prefix_fits_its_family(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """Of a Subnet or the claim for one."""
    spec = new["spec"]
    family, start, length = spec["ipFamily"], spec.get("startAddress"), spec.get("prefixLength")
    if start is not None and not _is(_ADDRESSES[family], start):
        yield _invalid("spec.startAddress", f'"{start}"', f"must be an {family} address")
        return
    if length is not None and length > _BITS[family]:
        why = f"must be no more than {_BITS[family]} for {family}"
        yield _invalid("spec.prefixLength", str(length), why)
    elif start is not None and length is not None:
        yield from _host_bits(family, start, length)


_EXAMPLES = {"IPv4": "10.128.0.0/9", "IPv6": "fd20:1000::/48"}


def _host_bits(family: str, start: str, length: int) -> Iterator[Cause]:
    if not _is(_NETWORKS[family], f"{start}/{length}"):
        inside = ipaddress.ip_network(f"{start}/{length}", strict=False)
        why = f"must be the first address of its prefix, {inside.network_address}"
        yield _invalid("spec.startAddress", f'"{start}"', why)


def _is(form: Any, text: str) -> bool:
    try:
        form(text)
    except ValueError:
        return False
    return True


def _invalid(path: str, value: str, why: str) -> Cause:
    return Cause(path, "FieldValueInvalid", f"Invalid value: {value}: {why}")
