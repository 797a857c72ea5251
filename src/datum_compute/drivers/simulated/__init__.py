"""Simulated machines: no process runs. Start reading in ``driver.py``."""
