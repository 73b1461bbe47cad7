"""Artefacts of other projects: QEMU, libvfio-user, the guest's kernel, modules and root.

`bluebridge.images.artefacts.Artefacts` gives the finished artefacts and builds missing ones:

    artefacts = Artefacts()                 # cache: $BLUEBRIDGE_CACHE or $XDG_CACHE_HOME/bluebridge
    artefacts.qemu()         -> Qemu(command: list[str], env: dict[str, str], version: str)
    artefacts.kernel()       -> Path        # uncompressed ELF, booted through PVH by -kernel
    artefacts.initrd()       -> Path        # guest root with modules and init
    artefacts.libvfio_user() -> Path        # libvfio-user.so, libvfio-user-layout.so beside it

`bluebridge.images.overlay.build(destination, root, initrd)` appends the guest code to an initrd.
`bluebridge.images.accelerator.accelerator(artefacts)` runs a guest to choose `kvm` or `tcg`.
`bluebridge.images.doctor.checks()` lists what this machine has, and the command for what it lacks.
`python -m bluebridge.images build | list | path NAME | refresh | clean` are its commands.
Failures are `bluebridge.images.report.ImageError`: one line with what failed and how to mend it.
"""
