"""Connections from outside to instances: a TCP proxy in the process of the cell.

Start with ``proxy.py``, which publishes ports. ``balancer.py`` chooses the machine of a connection,
``idle_scaler.py`` puts idle machines to sleep and wakes them, ``activations.py`` records the wakes,
and ``drivers.py`` drains a machine before its driver removes it. Published ports are closed while
the process is down.
"""
