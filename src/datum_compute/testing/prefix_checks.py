"""What must hold of prefixes at every commit. Checks as in ``invariants.py``, which lists them."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from datum_compute.testing.truth import Step, Truth


def i2_prefix_outlives_its_machines(truth: Truth, step: Step) -> str:
    """I2: a prefix is not given to others while a machine has an address of it. What somebody had a
    hand in, or what came back empty, has no say in that any more."""
    if step.after is not None or step.before is None or truth.tampered or truth.emptied:
        return ""
    given_back = ip_network(step.before["spec"]["cidr"])
    for cell, provider in truth.providers.items():
        for machine_id, machine in provider.alive().items():
            if machine_id in provider.lied_about:
                continue
            for address in machine.addresses:
                if ip_address(address.partition("/")[0]) in given_back:
                    return f"I2: {step.key.name} is given back, {cell} {machine_id} has {address}"
    return ""
