from __future__ import annotations

from infra.check_sizes import sizes


def test_a_file_above_its_aim_is_printed_and_fails_only_at_double_the_limit() -> None:
    (long,) = sizes("a.py", "x = 1\n" * 250)
    (double,) = sizes("a.py", "x = 1\n" * 601)
    assert "long    250 lines" in str(long)
    assert (long.fails, double.fails) == (False, True)


def test_a_long_function_is_named_with_its_line() -> None:
    (found,) = sizes("a.py", "\ndef much() -> None:\n" + "    x = 1\n" * 61)
    assert "over     62 lines" in str(found)
    assert str(found).endswith("a.py:2 much")
