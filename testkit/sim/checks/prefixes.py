"""What must hold of prefixes: at every commit (``invariants.py`` lists those checks), and after the
calm (``convergence.py`` lists those)."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from datum_compute.api.kinds import SUBNET
from datum_compute.api.plane import project_plane
from testkit.sim.checks.expected_state import ExpectedState
from testkit.sim.checks.state import ClusterState, Step, is_terminating


def i2_prefix_outlives_its_machines(state: ClusterState, step: Step) -> str:
    """I2: a prefix is not given to others while a machine has an address of it. What somebody had a
    hand in, what came back empty, or what left by force has no say in that any more."""
    if step.after is not None or step.before is None or state.tampered or state.emptied:
        return ""
    given_back = ip_network(step.before["spec"]["cidr"])
    for cell, provider in state.providers.items():
        for machine_id, machine in provider.alive().items():
            if machine_id in provider.lied_about or cell in state.given_up:
                continue
            for address in machine.addresses:
                if ip_address(address.partition("/")[0]) in given_back:
                    return f"I2: {step.key.name} is given back, {cell} {machine_id} has {address}"
    return ""


def i6_unused_subnets_are_deleted(state: ClusterState, expected: ExpectedState) -> str:
    """I6: prefixes are given back a while after their last user; a lost cell may still use one."""
    for project in expected.projects:
        for key, row in state.rows_of(project_plane(project), SUBNET.resource):
            if is_terminating(row) and not expected.lost:
                return f"subnet {key.name} of {project} is still leaving"
    return ""
