"""Patterns of fields that are too long to be read in an error, and what they ask for in words.

A field type takes its pattern from here; whoever tells people that a value does not match says the
words instead. To add one: a constant, and a line in ``WORDS`` that goes on after "must be".
"""

from __future__ import annotations

from collections.abc import Mapping

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_LABEL = f"^{_LABEL}$"
DNS_NAME = rf"^{_LABEL}(\.{_LABEL})*$"
PORT_NAME = "^([a-z0-9]+-)*[a-z0-9]*[a-z][a-z0-9]*(-[a-z0-9]+)*$"
CITY_CODE = "^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$"

_POSITIVE = r"([1-9][0-9]*(\.[0-9]+)?|0\.[0-9]*[1-9][0-9]*)"
CPU = f"^{_POSITIVE}m?$"
MEMORY = f"^{_POSITIVE}([kMGTPE]|[KMGTPE]i)?$"

DURATION = "^([1-9][0-9]{0,6})(ms|s|m|h)$"

# [host[:port]/]path[:tag][@digest], as registries understand it.
_HOST = (
    "[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?([.][a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*(:[0-9]+)?"
)
_PATH = "[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
_TAG = "[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}"
_DIGEST = "[a-z0-9]+:[0-9a-fA-F]{32,}"
IMAGE = f"^({_HOST}/)?{_PATH}(:{_TAG})?(@{_DIGEST})?$"

WORDS: Mapping[str, str] = {
    DNS_LABEL: "lower case letters, digits and inner dashes, such as my-name",
    DNS_NAME: "lower case letters, digits and inner dashes and dots, such as my-name or a.example",
    PORT_NAME: "lower case letters, digits and single inner dashes with at least one letter, such "
    "as http or grpc-2",
    CITY_CODE: "letters, digits and inner dashes, such as DFW",
    CPU: "a number of processors above 0, such as 2, 0.5 or 500m",
    MEMORY: "an amount of memory above 0, such as 512Mi, 2Gi or 1G",
    DURATION: "a whole number above 0 and ms, s, m or h, such as 500ms, 30s or 5m",
    IMAGE: "the name of an image, [registry/]path[:tag][@digest] with a path in lower case, such "
    "as web:1.2 or registry.example/team/web:1.2",
}
