"""Makes bare Debian machines, as folders that become the root of a process, and tests in them."""
