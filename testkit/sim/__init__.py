"""The simulator: the whole federation in one thread, in virtual time, from one seed.

Start with ``run/world.py`` (a run), then ``scenario`` (what happens), ``actors`` (who does it) and
``checks`` (what must hold). This package holds the simulated ports: loop, network, disk, host,
provider, traffic. ``python -m testkit.sim --help`` lists the commands.
"""
