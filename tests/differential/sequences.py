"""The sequences of requests that are sent to both servers.

Each sequence uses a namespace of its own (``space``). To add a sequence, write a function that
returns its steps, and add it to ``SEQUENCES``.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.differential import object_sequences, server_sequences
from tests.differential.steps import Step

SEQUENCES: dict[str, Callable[[str], list[Step]]] = {
    "config-maps": object_sequences.config_maps,
    "secrets": object_sequences.secrets,
    "custom": object_sequences.custom,
    "validation": object_sequences.validation,
    "lists": server_sequences.lists,
    "apply": object_sequences.apply,
    "cascades": object_sequences.cascades,
    "watches": server_sequences.watches,
    "forms": server_sequences.forms,
    "spaces": server_sequences.spaces,
    "leases-and-events": object_sequences.leases_and_events,
    "ours": object_sequences.ours,
    "reading-the-server": server_sequences.reading_the_server,
    "who": server_sequences.who,
    "definitions": server_sequences.definitions,
}
