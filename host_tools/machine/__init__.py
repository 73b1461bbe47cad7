"""One guest: QEMU, its console, its agent."""
