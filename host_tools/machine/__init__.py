"""One guest of a pair: its QEMU process, its serial console and its agent."""
