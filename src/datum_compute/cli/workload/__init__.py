"""What several verbs do with a workload: read, edit, plan, preview, apply and wait.

Start with plan.py, then apply.py.
"""
