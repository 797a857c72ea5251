"""The data of ConfigMaps and Secrets as a machine gets it: ready to use, and never shown.

It is made for the start of a machine and lives no longer. Nothing here may be stored, logged or
put into an error; ``sources`` alone (which versions they are) may be told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from datum_compute.api.datasources import PinnedData


@dataclass(frozen=True, slots=True)
class DataFile:
    """``path`` is relative to where the volume is mounted."""

    path: str
    content: bytes = field(repr=False)
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class MachineData:
    """What the spec of a Server refers to, by the names that the spec uses."""

    sources: tuple[PinnedData, ...] = ()
    # Container -> its whole environment: what the spec says in words, and what it refers to.
    variables: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    # Volume -> its files.
    files: Mapping[str, tuple[DataFile, ...]] = field(default_factory=dict)
    # Contents of .dockerconfigjson, in the order of imagePullSecrets.
    pull_configs: tuple[bytes, ...] = field(default=(), repr=False)


NO_DATA = MachineData()
