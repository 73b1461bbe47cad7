"""The kernel's NTB clients between the two guests, driven step by step from the host."""
