"""What a ``deploy`` command requests: which workloads, and how to write them."""

from __future__ import annotations

from dataclasses import dataclass

from datum_compute.api.meta.codec import JsonObject


@dataclass(frozen=True, slots=True)
class WorkloadFlags:
    """The fields of one workload that flags set; None and empty mean that the flag is absent."""

    name: str
    image: str | None = None
    cities: tuple[str, ...] = ()
    minimum: int | None = None
    port: int | None = None
    env: tuple[tuple[str, str | None], ...] = ()  # None removes the variable
    instance_type: str | None = None
    auto_rollback: bool | None = None


@dataclass(frozen=True, slots=True)
class DeployOptions:
    """How to deploy. With ``timeout_s`` None the command does not wait for the rollout."""

    timeout_s: int | None
    yes: bool = False
    confirm: str | None = None
    dry_run: bool = False
    plan_out: str | None = None
    deploy_key: str | None = None
    skip_checks: bool = False

    @property
    def writes(self) -> bool:
        return not self.dry_run and self.plan_out is None


@dataclass(frozen=True, slots=True)
class DeployRequest:
    """The workloads come from a plan file, else from manifests, else from flags.

    ``first_cities`` are the cities of a new workload if no flag names any.
    """

    options: DeployOptions
    flags: WorkloadFlags
    first_cities: tuple[str, ...] = ()
    plan_file: str | None = None
    manifest_path: str | None = None
    manifests: tuple[JsonObject, ...] = ()
