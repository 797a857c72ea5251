"""What must hold of prefixes: at every commit (``invariants.py`` lists those checks), and after the
calm (``convergence.py`` lists those)."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from datum_compute.api.kinds import SUBNET
from datum_compute.api.plane import project_plane
from testkit.sim.checks.expected_state import Core
from testkit.sim.checks.state import Step, Truth, is_terminating


def i2_prefix_outlives_its_machines(truth: Truth, step: Step) -> str:
    """I2: a prefix is not given to others while a machine has an address of it. What somebody had a
    hand in, what came back empty, or what left by force has no say in that any more."""
    if step.after is not None or step.before is None or truth.tampered or truth.emptied:
        return ""
    given_back = ip_network(step.before["spec"]["cidr"])
    for cell, provider in truth.providers.items():
        for machine_id, machine in provider.alive().items():
            if machine_id in provider.lied_about or cell in truth.given_up:
                continue
            for address in machine.addresses:
                if ip_address(address.partition("/")[0]) in given_back:
                    return f"I2: {step.key.name} is given back, {cell} {machine_id} has {address}"
    return ""


def i6_subnets_have_left(truth: Truth, core: Core) -> str:
    """I6: prefixes are given back a while after their last user; a lost cell may still use one."""
    for project in core.projects:
        for key, row in truth.of_resource(project_plane(project), SUBNET.resource):
            if is_terminating(row) and not core.lost:
                return f"subnet {key.name} of {project} is still leaving"
    return ""
