"""Connections from outside to instances: a small TCP proxy in the process of the cell.

``proxy.py`` publishes ports, ``balance.py`` chooses who takes a connection, ``sleepers.py`` puts
idle machines to sleep and wakes them, ``wakes.py`` keeps what that took, ``draining.py`` keeps a
machine until its connections have ended. A published port is gone while the process is; the
addresses of the instances are not.
"""
