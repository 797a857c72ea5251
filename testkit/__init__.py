"""Test kit: builders, fakes, conformance suites, servers, processes and the simulator (``sim``).

Used by tests, bench and examples; not in the wheel, and never imported below src. It may import
everything but cli. Start with ``builders.py`` for unit tests and ``sim/run/world.py`` for the
simulator.
"""
