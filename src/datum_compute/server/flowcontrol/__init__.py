"""Priority and fairness: which waiting request gets the event loop next, and which gets 429.

May not enter: knowledge of kinds or verbs beyond the table of levels, wall clock.
Reading order: ``levels.py`` (who belongs to which level), ``fair_queue.py`` (the order, a pure data
structure), ``control.py`` (the same on an event loop, with limits).
"""
