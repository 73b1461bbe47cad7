"""Tests of verbs that run on any provider."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.models.verbs.contract", "tests.models.verbs.player")
