"""A small StatefulSet on the controller runtime: two kinds, a pure planner and two controllers.

Read ``kinds.py``, ``plan.py`` and ``controllers.py`` in this order. README.md describes how to run
it.
"""
