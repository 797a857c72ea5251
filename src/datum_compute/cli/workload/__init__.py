"""Steps that several verbs share: read, edit, plan, preview, apply and wait for a workload.

Start with deploy.py (all steps of a deploy), then plan.py.
"""
