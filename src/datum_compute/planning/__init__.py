"""Pure decisions: ``plan_x(desired, observed, now) -> Plan``.

May not enter: async, the clock, randomness, logging, I/O.
A plan is data: it can be printed, compared and tested without a world. A new decision is a new
file here and a controller that carries it out.
"""
