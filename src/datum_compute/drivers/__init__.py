"""Drivers run Servers as machines: simulated, as containers of an engine, or as pods of a cluster.

Start with ``driver.py``, the protocol. A driver must not depend on owners or rollouts, nor import
another driver; code that drivers share is in the modules of this folder. To add a driver, implement
the protocol and run the conformance suite ``testkit/conformance/driver.py`` in its tests.
"""
