"""Pure decisions: functions like ``plan_x(desired, observed, now) -> Plan``.

Nothing here may use async, the clock, randomness, logging or I/O. A plan is a value that can be
printed, compared and tested without a server. A new decision needs a module here and a controller
that applies its plans. Start with plan.py.
"""
