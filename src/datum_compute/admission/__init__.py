"""Defaults and validations that a schema cannot express, for the embedded server and the webhook.

Start with ``chain.py``, which lists the rules that depend only on the object. Rules that need other
objects or permissions are listed in ``context_rules.py``. To add a rule, write a function in the
module of its subject in ``rules/`` and list it. Rules do not write and do not plan rollouts.
"""
