"""Conformance suites: one for each seam (store, plane, driver).

A suite is a list of checks; the tests of an implementation run each check with a function that
opens the implementation. To add a rule, add a check to the list: every implementation then has to
pass it.
"""
