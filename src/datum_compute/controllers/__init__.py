"""One file for each controller: observe -> plan -> carry out.

May not enter: decisions (room planning), other controllers, the store, the server.
To add one: ``controllers/<group>/<name>.py`` ending in ``CONTROLLER = Controller(...)`` (or
``CONTROLLERS`` for the same work on several kinds), and one line in ``registry.py``.
"""
