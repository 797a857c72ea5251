"""Controllers of workloads and of what runs in one city, from Workload to machine.

Start with workload.py (in the project) and deployment.py (in the cell).
"""
