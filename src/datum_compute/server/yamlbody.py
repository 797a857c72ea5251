"""YAML request bodies, parsed into JSON values.

Anything that JSON cannot express is rejected: aliases, tags, duplicate keys, several documents.
Parsing YAML takes a hundred times as long as parsing JSON and blocks the event loop. The limit on
values keeps it well below 100 ms.
"""

from __future__ import annotations

from typing import Any

from datum_compute.api.errors import BadRequest, RequestEntityTooLarge
from datum_compute.api.meta.codec import encode
from datum_compute.api.meta.yaml import (
    PARSER_SLOWDOWN,
    YamlError,
    YamlLimits,
    YamlTooLarge,
    parse_yaml,
)
from datum_compute.server.problems import shortened

YAML_BYTES_MAX = 1024 * 1024 // PARSER_SLOWDOWN
YAML_VALUES_MAX = 20_000 // PARSER_SLOWDOWN
_LIMITS = YamlLimits(chars_max=YAML_BYTES_MAX, values_max=YAML_VALUES_MAX)


def decoded_yaml(body: bytes) -> Any:
    """Return the JSON value. Raises 413 for a body above the limits, 400 for an invalid one."""
    if len(body) > YAML_BYTES_MAX:
        raise RequestEntityTooLarge(
            f"Request entity too large: limit is {YAML_BYTES_MAX} for YAML; send JSON instead"
        )
    try:
        documents = parse_yaml(body.decode(), _LIMITS)
        value = documents[0].value if documents else None
        encode(value)
    except YamlTooLarge as error:
        raise RequestEntityTooLarge(
            f"Request entity too large: {_located(error)}; send JSON instead"
        ) from error
    except YamlError as error:
        raise BadRequest(f"the body is not valid YAML: {_located(error)}") from error
    except (UnicodeError, TypeError, ValueError) as error:
        raise BadRequest(f"the body is not valid YAML: {shortened(str(error))}") from error
    return value


def _located(error: YamlError) -> str:
    return f"line {error.line}: {error.message}" if error.line else error.message
