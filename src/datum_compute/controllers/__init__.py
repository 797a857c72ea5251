"""Controllers: each observes objects, requests a plan from ``planning``, and carries it out.

A controller contains no decisions and imports neither other controllers nor the store nor the
server. To add one, write ``controllers/<group>/<name>.py`` that ends in
``CONTROLLER = Controller(...)`` (or ``CONTROLLERS``, for several kinds), and add a line to
``registry.py``. Start with workload/workload.py.
"""
