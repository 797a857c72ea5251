"""What operators, providers and users do to projects and their access to compute.

Values as in ``operations.py``, which lists them; ``project_people.py`` carries them out, those of
one project one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class CreateProject:
    """A project that was not there at first; its plane comes while the world runs."""

    at_s: float
    project: str


@dataclass(frozen=True, slots=True)
class GateCompute:
    """From now on the provider is asked, or is not; the project only says whose turn it is."""

    at_s: float
    project: str
    gated: bool


@dataclass(frozen=True, slots=True)
class RequestAccess:
    at_s: float
    project: str


@dataclass(frozen=True, slots=True)
class Decide:
    """What the provider says of the project's request, if there is one."""

    at_s: float
    project: str
    decision: Literal["Approved", "Denied", "Suspended", "Resumed", "Removed"]


@dataclass(frozen=True, slots=True)
class RenewAccess:
    """The request is deleted and made anew."""

    at_s: float
    project: str


@dataclass(frozen=True, slots=True)
class DeployIn:
    """A workload, if the project has access; asked for a while, because access may be coming."""

    at_s: float
    project: str
    name: str
    replicas: int
    cities: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteProject:
    at_s: float
    project: str


OnProjects = (
    CreateProject | GateCompute | RequestAccess | Decide | RenewAccess | DeployIn | DeleteProject
)
