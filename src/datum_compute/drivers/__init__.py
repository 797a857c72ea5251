"""What realises Servers. A driver knows machines, not owners or rollouts.

May not enter: the API server, other rooms than api.
To add a driver: implement the protocol in ``driver.py`` and hand it to the conformance suite in
``testkit/conformance/driver.py``.
"""
