"""Compares the guest kernel's own record of its register accesses with the bus log."""
