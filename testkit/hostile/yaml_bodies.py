"""YAML bodies, and JSON bodies with fields that are expensive to check for duplicates."""

from __future__ import annotations

from datum_compute.api.http import APPLY_PATCH, YAML
from testkit.api_server.running_server import WORKLOADS
from testkit.hostile.request import HostileRequest, project_request

_SIZE = 1024 * 1024


def _yaml(name: str, body: bytes, status: int, mentions: str = "") -> HostileRequest:
    return HostileRequest(
        name,
        requests=lambda: [project_request("POST", WORKLOADS, body[:_SIZE], content_type=YAML)],
        status=status,
        mentions=mentions,
    )


def _aliases() -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    return "\n".join(lines).encode()


_TOO_MANY = "more than 20000 values; send JSON"
_LONG_KEY = b'{"' + b"k" * 1_000_000 + b'":{' + b",".join(b'"%x":1' % n for n in range(20_000))
_DUPLICATES = b'{"a":[' + b",".join([b'{"b":1,"b":2}'] * 14_000) + b"]}"

REQUESTS = (
    _yaml("YAML with 500,000 numbers in a list", b"a: [" + b"1," * 500_000 + b"]", 413, _TOO_MANY),
    _yaml("YAML with 250,000 lines of a list", b"a:\n" + b"- 1\n" * 250_000, 413, _TOO_MANY),
    _yaml("YAML with 300,000 empty lists", b"a: [" + b"[]," * 300_000 + b"]", 413, _TOO_MANY),
    _yaml("YAML with 260,000 mappings", b"a: [" + b"{a}," * 260_000 + b"]", 413, _TOO_MANY),
    _yaml(
        "YAML with 150,000 keys",
        b"".join(b"k%x:\n" % number for number in range(150_000)),
        413,
        _TOO_MANY,
    ),
    _yaml("YAML with aliases of aliases", _aliases(), 400, "aliases are not supported"),
    _yaml("YAML nested 1,000,000 levels deep", b"[" * _SIZE, 400, "levels deep"),
    _yaml("YAML nested 500,000 levels of a block deep", b"- " * 500_000, 400, "levels deep"),
    _yaml("YAML with a text of 1 MB", b"a: " + b"x" * (_SIZE - 3), 400),
    _yaml("YAML with a text of 500,000 escapes", b'a: "' + b"\\n" * 500_000 + b'"', 400),
    _yaml("YAML with a key of 1 MB", b"? " + b"x" * (_SIZE - 6) + b"\n: 1", 413, "a key is longer"),
    HostileRequest(
        "YAML in an apply patch with 500,000 numbers",
        requests=lambda: [
            project_request(
                "PATCH",
                f"{WORKLOADS}/web",
                b"a: [" + b"1," * 500_000 + b"]",
                content_type=APPLY_PATCH,
                fieldManager="test",
            )
        ],
        status=413,
        mentions=_TOO_MANY,
    ),
    HostileRequest(
        "a key of 1 MB with 20,000 fields below it, checked for duplicates",
        requests=lambda: [
            project_request("POST", WORKLOADS, _LONG_KEY + b"}}", fieldValidation="Strict")
        ],
        status=400,
    ),
    HostileRequest(
        "14,000 objects with a duplicate field",
        requests=lambda: [
            project_request("POST", WORKLOADS, _DUPLICATES, fieldValidation="Strict")
        ],
        status=400,
    ),
)
