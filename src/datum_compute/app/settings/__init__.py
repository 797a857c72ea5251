"""Settings of all processes: flag, environment, file, default. Start with settings.py.

Nothing else reads the environment. To add a setting: a line in options.py and a field in
settings.py; ``make docs`` adds it to docs/reference/settings.md.
"""
