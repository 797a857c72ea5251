"""Rules for the addresses of networks and subnets."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.admission.chain import admit
from datum_compute.api.kinds import NETWORK, SUBNET, SUBNET_CLAIM
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo


def fields(kind: KindInfo[Any], spec: JsonObject) -> list[str]:
    return [cause.field for cause in admit(kind, {"metadata": {}, "spec": spec}, None)[1]]


@pytest.mark.parametrize(
    "ranges",
    [{}, {"ipv4Range": "10.128.0.0/9"}, {"ipv6Range": "fd20:1000::/48", "ipv4Range": "10.0.0.0/8"}],
)
def test_prefixes_are_accepted_as_ranges(ranges: JsonObject) -> None:
    assert fields(NETWORK, {"ipam": {"mode": "Auto", **ranges}}) == []


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("ipv4Range", "10.128.0.1/9"),
        ("ipv4Range", "10.256.0.0/16"),
        ("ipv4Range", "10.0.0.0/33"),
        ("ipv6Range", "fd20::1/48"),
        ("ipv6Range", "10.0.0.0/8"),
        ("ipv6Range", "fd20::/129"),
    ],
)
def test_other_ranges_are_refused(field: str, text: str) -> None:
    assert fields(NETWORK, {"ipam": {"mode": "Auto", field: text}}) == [f"spec.ipam.{field}"]


@pytest.mark.parametrize("kind", [SUBNET, SUBNET_CLAIM], ids=lambda kind: str(kind.kind))
@pytest.mark.parametrize(
    ("family", "start", "length", "wrong"),
    [
        ("IPv4", None, None, []),
        ("IPv4", None, 20, []),
        ("IPv4", "10.128.16.0", 20, []),
        ("IPv4", "10.128.16.0", None, []),
        ("IPv6", "fd20:1000::", 64, []),
        ("IPv4", None, 33, ["spec.prefixLength"]),
        ("IPv4", "10.128.0.0", 64, ["spec.prefixLength"]),
        ("IPv4", "10.128.16.1", 20, ["spec.startAddress"]),
        ("IPv4", "fd20:1000::", 20, ["spec.startAddress"]),
        ("IPv6", "10.128.0.0", 64, ["spec.startAddress"]),
        ("IPv6", "fd20:1000::1", 64, ["spec.startAddress"]),
        ("IPv6", "fd20", 64, ["spec.startAddress"]),
    ],
)
def test_a_prefix_must_be_valid_in_its_family(
    kind: KindInfo[Any], family: str, start: str | None, length: int | None, wrong: list[str]
) -> None:
    spec = {"startAddress": start, "prefixLength": length}
    given = {name: value for name, value in spec.items() if value is not None}
    assert fields(kind, {"ipFamily": family, **given}) == wrong
