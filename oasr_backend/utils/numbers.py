"""What counts as a number where a user gives one."""

import sys


def is_number(value: object) -> bool:
    """Whether a value is a finite number that a float can hold; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
