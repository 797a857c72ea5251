"""Simulated machines: state that changes with time, and no process that runs.

Start with ``driver.py``. ``behaviors.py`` defines what machines do, by the registry of their image.
"""
