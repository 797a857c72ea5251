"""Versioned objects of many planes: compare-and-swap, a watch log, one durable journal.

May not enter: knowledge of any spec field, decisions, HTTP.
``Store`` holds all objects as bytes in memory and answers reads from there. A ``Journal`` makes
writes durable; to add one, implement the protocol in ``journal.py`` and hand it to the
conformance suite in ``testkit/conformance/store.py``.
"""
