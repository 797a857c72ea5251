"""Priority and fairness: which waiting request gets the event loop next, and which gets 429.

This package does not depend on kinds, verbs or the wall clock; only ``levels.py`` names a resource.
Start with ``levels.py`` (which user has which priority level), then ``fair_queue.py`` (the order, a
pure data structure) and ``control.py`` (the queue on an event loop, with its limits).
"""
