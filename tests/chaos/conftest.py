"""The cells' asserts say their values too."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.chaos.cells")
