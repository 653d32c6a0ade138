"""Numbers in charts, at the borders of their units."""

from __future__ import annotations

import pytest

from ppo_bench.commands.report.formatting import short


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (-3.14159, "-3.14"),
        (999.4, "999"),
        (999.6, "1,000"),
        (1234.0, "1,234"),
        (9999.7, "10k"),
        (12_345.0, "12.3k"),
        (999_600.0, "1M"),
        (1_234_500.0, "1.23M"),
    ],
)
def test_a_number_is_short_and_in_one_unit(value: float, shown: str) -> None:
    assert short(value) == shown
