"""Checks of IPv4 prefixes: I2 at every commit, I6 in a settled world."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from datum_compute.api.kinds import SUBNET
from datum_compute.api.planes import project_plane
from testkit.sim.checks.expected_state import ExpectedState
from testkit.sim.checks.state import ClusterState, RowChange, is_terminating


def i2_prefix_outlives_its_machines(state: ClusterState, change: RowChange) -> str:
    """I2: a prefix is released only when no machine has an address in it.

    Not checked after an operator changed objects, or when a plane was emptied. Machines of a cell
    that left by force do not count.
    """
    if change.after is not None or change.before is None or state.tampered or state.emptied_planes:
        return ""
    given_back = ip_network(change.before["spec"]["cidr"])
    for cell, provider in state.providers.items():
        for machine_id, machine in provider.alive().items():
            if machine_id in provider.lied_about or cell in state.abandoned_cells:
                continue
            for address in machine.addresses:
                if ip_address(address.partition("/")[0]) in given_back:
                    return f"I2: {change.key.name} is released, {cell} {machine_id} has {address}"
    return ""


def i6_unused_subnets_are_deleted(state: ClusterState, expected: ExpectedState) -> str:
    """I6: an unused subnet is deleted after a while, unless a lost cell may still use it."""
    for project in expected.projects:
        for key, row in state.rows_of(project_plane(project), SUBNET.resource):
            if is_terminating(row) and not expected.lost:
                return f"subnet {key.name} of {project} is still terminating"
    return ""
