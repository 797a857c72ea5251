"""Conformance suites: one for each seam (store, plane, driver).

An implementation inherits the test class of its seam and provides a fixture. To add a rule, add a
test to the suite: every implementation then has to pass it.
"""
