"""When a Ready instance counts as available: after it has been Ready for ``minReadySeconds``.

A program that starts, is Ready for a moment and exits must not count as a successful replacement.
Where something checks that the program serves (a readiness probe, a TCP port that the driver
connects to, the simulated driver), Ready already means that. Elsewhere Ready only means that the
process has started, so an instance has to stay Ready for a few seconds. The default is computed
here and not in the schema, because it depends on the template and on the driver.
"""

from __future__ import annotations

from dataclasses import dataclass

from datum_compute.api.conditions import EPOCH, TRUE, find_condition
from datum_compute.api.instance import READY, Instance, InstanceTemplate
from datum_compute.api.timestamps import remaining_s
from datum_compute.api.workloaddeployment import WorkloadDeployment

# How long an instance must be Ready when nothing checks that its program serves.
UNCHECKED_MIN_READY_S = 5


@dataclass(frozen=True, slots=True)
class MinReady:
    """How long an instance must be Ready to count as available, as of ``now``.

    ``unobserved`` are uids of instances whose recorded Ready no driver has confirmed since this
    process started. A rollout neither counts them as available nor replaces them as broken.
    """

    seconds: int = 0
    now: str = EPOCH
    unobserved: frozenset[str] = frozenset()

    def is_available(self, instance: Instance) -> bool:
        since = _ready_since(instance)
        return since is not None and self._remaining_s(since) == 0

    def is_confirmed_available(self, instance: Instance) -> bool:
        return instance.metadata.uid not in self.unobserved and self.is_available(instance)

    def seconds_until_available(self, instance: Instance) -> float | None:
        """Return None if the instance is not Ready or is already available."""
        since = _ready_since(instance)
        return None if since is None else self._remaining_s(since) or None

    def _remaining_s(self, ready_since: str) -> float:
        return remaining_s(ready_since, self.seconds, self.now) if self.seconds else 0.0


def _ready_since(instance: Instance) -> str | None:
    """Return since when the instance has been Ready; None if it is not Ready or is terminating."""
    ready = find_condition(instance.status.conditions, READY)
    if ready is None or ready.status != TRUE or instance.is_terminating:
        return None
    return ready.last_transition_time


# Every Ready instance is available.
WITHOUT_DELAY = MinReady()


def min_ready_seconds(deployment: WorkloadDeployment, *, simulated: bool) -> int:
    """``simulated``: the cell runs the simulated driver, which decides itself when to be Ready."""
    configured = deployment.spec.scale_settings.min_ready_seconds
    if configured is not None:
        return configured
    if simulated or has_readiness_check(deployment.spec.template):
        return 0
    return UNCHECKED_MIN_READY_S


def has_readiness_check(template: InstanceTemplate) -> bool:
    """Whether drivers check that the program serves: by a readiness probe or by a TCP port."""
    return any(
        container.readiness_probe is not None
        or any(port.protocol == "TCP" for port in container.ports)
        for container in template.spec.runtime.sandbox.containers
    )
