"""Formats of a schema that are checked. Others only tell people what to expect.

To add one of texts: a function from text to whether it fits, listed in ``FORMATS``. Those of
numbers say how large a number may be (``INTEGER_RANGES``, ``NUMBER_RANGES``); a whole number of no
known format fits into 64 bits, as it does in every program that reads it.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from datum_compute.api.meta.timestamps import normalized_time

# Values of these are never shown.
SECRET_FORMATS = ("byte", "password")

_UUID = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_HOST_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s]{1,255}")
_MAC = re.compile(r"([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}")
_DATE = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")
_DATE_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,24}(Z|[-+][0-9]{2}:[0-9]{2})")
_DURATION = re.compile(r"[-+]?([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h|d|w) ?)+|0")
_SPACE = re.compile(r"\s")
_SHORT_CHARS_MAX = 320  # no valid value of a short format is longer


def is_base64(text: str) -> bool:
    try:
        base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def is_date_time(text: str) -> bool:
    if not _DATE_TIME.fullmatch(text):
        return False
    try:
        normalized_time(text)
    except ValueError:
        return False
    return True


def _is_address(version: int) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            return ipaddress.ip_address(text).version == version
        except ValueError:
            return False

    return check


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def _is_uri(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme or parts.path.startswith("/")) and _SPACE.search(text) is None


def _is_hostname(text: str) -> bool:
    labels = text.removesuffix(".").split(".")
    return len(text) <= 253 and all(_HOST_LABEL.fullmatch(label) for label in labels)


def _matches(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


def _short(fits: Callable[[str], bool]) -> Callable[[str], bool]:
    """Return a check that rejects long texts without reading them."""
    return lambda text: len(text) <= _SHORT_CHARS_MAX and fits(text)


FORMATS: Mapping[str, Callable[[str], bool]] = {
    "byte": is_base64,
    "date-time": _short(is_date_time),
    "datetime": _short(is_date_time),
    "date": _short(_matches(_DATE)),
    "duration": _short(_matches(_DURATION)),
    "uuid": _short(_matches(_UUID)),
    "ipv4": _short(_is_address(4)),
    "ipv6": _short(_is_address(6)),
    "cidr": _short(_is_network),
    "mac": _short(_matches(_MAC)),
    "uri": _is_uri,
    "hostname": _short(_is_hostname),
    "email": _short(_matches(_EMAIL)),
}

Range = tuple[int | float, int | float]

ANY_INTEGER: Range = (-(2**63), 2**63 - 1)
INTEGER_RANGES: Mapping[str, Range] = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": ANY_INTEGER,
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}
_FLOAT_MAX = (2 - 2**-23) * 2.0**127
NUMBER_RANGES: Mapping[str, Range] = dict.fromkeys(("float", "float32"), (-_FLOAT_MAX, _FLOAT_MAX))
