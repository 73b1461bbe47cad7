"""InfiniBand: link headers, subnet management, performance management, subnet administration."""
