"""A level-triggered controller runtime for many planes.

A plane is a Kubernetes API. Planes come and go while the runtime runs; controllers are written
once and work on all planes of their role.

watch event -> indexed cache -> map to Key(plane, ref) -> queue -> worker -> reconcile -> Done,
Later or Terminal. An exception is a retry. Only ``worker.py`` interprets the outcome.

A controller is a value: a role, a function, and the edges along which changes wake it.

    async def reconcile(planes: Planes, key: Key) -> Outcome:
        view = planes.need(key.plane)
        parent = view.read(PARENT).get(key.ref)
        if parent is None:
            return Done()
        children = view.read(CHILD).owned_by(parent.metadata.uid)
        for missing in plan(parent, children):
            await view.create(CHILD, missing)
        return Done()

    CONTROLLER = Controller(
        name="parent",
        role="project",
        reconcile=reconcile,
        edges=(for_(PARENT), owns(CHILD)),
    )

    manager = Manager([CONTROLLER], lambda manager: Planes(manager.view), random)
    manager.engage(project_plane("web"), client)
    await manager.run()

What a reconcile may rely on:
- It has a key and nothing else; whatever happened, it reads how things are now.
- One key is never reconciled twice at once; wake-ups that come meanwhile lead to one more pass.
- ``view.read`` is complete and not older than this process's own writes, or it raises NotSynced.
- It may raise, hang or be cancelled: it is tried again later, and no other key notices.
- A plane that never answers holds up only the work on itself.

What it must do in turn: be quick when nothing is to be done (it is called again and again), look
children up by index, write only differences, and let every write say what it was decided on (a
version, a uid, a name of its own), because the process may die after any of them.

Where to read on: ``controller.py`` (the words), ``view.py`` (reading and writing), ``informer.py``
and ``cache.py`` (where reads come from), ``feed.py`` and ``queue.py`` (from changes to work),
``worker.py``, ``manager.py`` (planes and processes), ``metrics.py``. docs/concepts/runtime.md tells
the whole; examples/ordered_set is a controller from end to end.

May not enter: the name of any kind, decisions.
"""
