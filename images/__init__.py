"""Everything that is not our code: QEMU, libvfio-user, the guest's kernel, modules and root.

`bluebridge.images.artefacts.Artefacts` hands the finished things out and builds what is missing:

    artefacts = Artefacts()                 # cache: $BLUEBRIDGE_CACHE or $XDG_CACHE_HOME/bluebridge
    artefacts.qemu()         -> Qemu(command: list[str], env: dict[str, str], version: str)
    artefacts.kernel()       -> Path        # uncompressed ELF, booted through PVH by -kernel
    artefacts.initrd()       -> Path        # guest root with modules and init
    artefacts.libvfio_user() -> Path        # libvfio-user.so, libvfio-user-layout.so beside it

`images.overlay.build(destination, root, initrd)` joins the cached initrd and today's guest code.
`bluebridge.images.accelerator.accelerator(artefacts)` says `kvm` or `tcg` by running guest code.
`bluebridge.images.doctor.checks()` lists what this machine has and the command that mends the rest.
`python -m bluebridge.images build | list | path NAME | refresh | clean` is the same from a shell.
Failures are `bluebridge.images.errors.ImageError`: one line that says what and how to mend it.
"""
