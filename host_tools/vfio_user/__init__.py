"""A vfio-user client: what QEMU does to a device, message by message, without a guest."""
