"""Versioned objects of many planes: compare-and-swap, a watch log, one durable journal.

``Store`` in ``store.py`` keeps all objects in memory as bytes and serves reads from there. A
``Journal`` makes writes durable. To add a journal, implement the protocol in ``journal.py`` and run
the conformance suite in ``testkit/conformance/store.py`` on it. The package contains no HTTP and
does not depend on a field of a spec.
"""
