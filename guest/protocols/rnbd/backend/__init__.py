"""The devices that a server exports: files, block devices and RAM disks."""
