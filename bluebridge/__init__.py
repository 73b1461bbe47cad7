"""A virtual PCIe lab: the adapters and bridges that pairs of virtual machines see, and its tools.

In a checkout the folders beside this file are links to those of the checkout; an installed package
holds copies (docs/architecture.md says why). Standard library only: guests import it, too.
"""

from bluebridge import compiled
from bluebridge.hot_modules import DEVICE

__version__ = "0.1.0"

compiled.install(DEVICE)
