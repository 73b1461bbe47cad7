"""`bluebridge kmod`: build a user's module for the guest kernel."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bluebridge.host_tools.errors import LabError, UsageError

if TYPE_CHECKING:
    from bluebridge.images.recipes.debian_kernels import DebianKernel

_DESCRIPTION = """\
Build the kernel modules of DIR (any kbuild folder) for the guest kernel. The build works on a
private copy, without privileges, and writes nothing into DIR; the stripped modules come to the
folder of -o, and what they export beside them as DIR.symvers, for --symvers of the next build.
Arguments for make follow after --, as in

  bluebridge kmod mymodule -o out -- CONFIG_MYMODULE=m KCFLAGS=-DDEBUG
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `bluebridge kmod`, apart from what follows `--`."""
    parser.description = _DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = (
        "bluebridge kmod [-h] [-o DIR] [--kernel KERNEL] [--symvers PATH] [--with DIR] DIR "
        "[-- NAME=VALUE ...]"
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the modules' source")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="where the modules go (default: the current folder)",
    )
    parser.add_argument(
        "--kernel",
        default="",
        metavar="KERNEL",
        help="a name of `bluebridge kernel list` (default: the kernel that guests have)",
    )
    parser.add_argument(
        "--symvers",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="symbols that another module exports; may be repeated",
    )
    parser.add_argument(
        "--with",
        type=Path,
        action="append",
        default=[],
        dest="readable",
        metavar="DIR",
        help="another folder the build may read, at the same path; may be repeated",
    )


def _kernel(name: str) -> DebianKernel | Path:
    """Return the kernel to build for. Raises `UsageError` for one without a build tree here."""
    from bluebridge.host_tools.lab import software

    named = software.checked(name) if name else software.GuestSoftware().chosen().kernel
    if (debian := software.debian_kernel(named)) is not None:
        return debian
    return software.image(named).parent


def main(options: argparse.Namespace) -> int:
    """Build and print each module with its vermagic and dependencies; returns the exit status.

    Raises `LabError`.
    """
    from bluebridge.images.kmod import build, modinfo

    with image_errors():
        modules = build(
            options.folder,
            options.output,
            options.words,
            symvers=options.symvers,
            readable=options.readable,
            kernel=_kernel(options.kernel),
        )
    for module in modules:
        fields = modinfo(module)
        print(module)
        print(f"  vermagic: {fields['vermagic'].strip()}")
        print(f"  depends:  {fields['depends'].replace(',', ', ') or 'nothing'}")
    return 0


@contextmanager
def image_errors() -> Iterator[None]:
    """A build's errors as `LabError`s, with the compiler's output as transcript if there is one.

    A signal that ends the program ends the build first.
    """
    from bluebridge.host_tools.processes import termination_as_exception
    from bluebridge.images.kmod import BuildFailed, WrongRequest
    from bluebridge.images.report import ImageError

    try:
        with termination_as_exception():
            yield
    except BuildFailed as error:
        failure = LabError(error.what, error.mend, error.output)
        failure.aloud = True
        raise failure from error
    except WrongRequest as error:
        raise UsageError(error.what, error.mend) from error
    except ImageError as error:
        raise LabError(error.what, error.mend) from error
