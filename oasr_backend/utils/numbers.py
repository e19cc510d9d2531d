"""What counts as a number where a user gives one."""

import math


def is_number(value: object) -> bool:
    """Whether a value is a finite number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
