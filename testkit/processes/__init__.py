"""Real processes for tests and benchmarks: local platforms, API servers, kubectl, engines.

Code here starts programs and reads the clock, which the house rules forbid in the rest of the test
kit. Start with local_platform.py.
"""
