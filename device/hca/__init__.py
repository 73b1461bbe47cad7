"""The emulated ConnectX-3: `device.Hca` is the function behind the PCI endpoint.

Control plane: `hcr` takes commands from the register, `*_commands` carry them out on the objects
of `eq`, `cq`, `memory_regions`, `port`, `icm`. Data path: `qp`, `srq` and the engines beside them.
"""
