"""Tests of verbs that run on any provider, and a provider for tests."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.models.verbs.contract", "tests.models.verbs.player")
