"""Conformance suites: one for each seam (store, plane, driver).

A suite is a list of checks. The tests of an implementation run each check with a function that
opens the implementation. To add a rule, add a check to the list: every implementation must then
pass it.
"""
