"""Settings of all processes: flag, environment, file, default.

Start with settings.py. Nothing else reads the environment.
"""
