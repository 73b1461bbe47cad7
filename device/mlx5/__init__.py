"""One emulated ConnectX-5, driven by the Linux driver mlx5_core as it is.

`Hca` in device.py is the function behind the PCI endpoint, `Adapter` in adapter.py has its parts.
Firmware commands reach them through rules, a module of `commands` for each kind of object.
"""
