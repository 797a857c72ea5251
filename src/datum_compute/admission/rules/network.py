"""Rules for the addresses of Networks, Subnets and SubnetClaims.

- The ranges of a Network are prefixes of their family, without host bits.
- Address and length of a Subnet or SubnetClaim form a prefix of its family. If one of them is
  missing, only the other is checked.

A Workload that refers to a network is checked in ``workload_references.py``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any

from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject

_BITS = {"IPv4": 32, "IPv6": 128}
_NETWORKS = {"IPv4": ipaddress.IPv4Network, "IPv6": ipaddress.IPv6Network}
_ADDRESSES = {"IPv4": ipaddress.IPv4Address, "IPv6": ipaddress.IPv6Address}


def check_network_ranges(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """The ranges of a Network are prefixes of their family."""
    for field, family in (("ipv4Range", "IPv4"), ("ipv6Range", "IPv6")):
        text = new["spec"]["ipam"].get(field)
        if text is not None and not _is_valid(_NETWORKS[family], text):
            why = f"must be an {family} prefix without host bits, such as {_EXAMPLES[family]}"
            yield Cause.invalid(f"spec.ipam.{field}", why, text)


def check_subnet_prefix(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """Address and length of a Subnet or a SubnetClaim form a prefix of its family."""
    spec = new["spec"]
    family, start, length = spec["ipFamily"], spec.get("startAddress"), spec.get("prefixLength")
    if start is not None and not _is_valid(_ADDRESSES[family], start):
        yield Cause.invalid("spec.startAddress", f"must be an {family} address", start)
        return
    if length is not None and length > _BITS[family]:
        why = f"must be no more than {_BITS[family]} for {family}"
        yield Cause.invalid("spec.prefixLength", why, length)
    elif start is not None and length is not None:
        yield from _check_host_bits(family, start, length)


_EXAMPLES = {"IPv4": "10.128.0.0/9", "IPv6": "fd20:1000::/48"}


def _check_host_bits(family: str, start: str, length: int) -> Iterator[Cause]:
    if not _is_valid(_NETWORKS[family], f"{start}/{length}"):
        inside = ipaddress.ip_network(f"{start}/{length}", strict=False)
        why = f"must be the first address of its prefix, {inside.network_address}"
        yield Cause.invalid("spec.startAddress", why, start)


def _is_valid(form: Any, text: str) -> bool:
    try:
        form(text)
    except ValueError:
        return False
    return True
