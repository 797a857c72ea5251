"""A small StatefulSet on the controller runtime: a kind, a pure planner, a controller.

Read ``kinds.py``, ``plan.py``, ``controllers.py`` in this order; README.md says how to run it.
"""
