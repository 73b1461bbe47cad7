"""A guest that attacks every function of a server while a bystander's traffic is verified.

    python -m tests.hostile --accesses 5000000

`attacks` are the workloads, `guest` is whose functions they go through, `bystander` the other
guest, a process of its own, `campaign` the run and what it found.
"""
