"""Python imports this when it starts: a process that a test started has the test's defect, too."""

import os

from tests.mutants.planting import NAME, plant_named

if name := os.environ.get(NAME):
    plant_named(name)
