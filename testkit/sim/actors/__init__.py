"""What acts on a simulated world: users, operators and visitors, and the fault injector.

Each takes the steps of a scenario and performs them through the API or on the simulated ports.
Start with ``users.py``.
"""
