"""The search for the largest load that passes."""

from collections.abc import Callable


def capacity(passes: Callable[[int], bool], start: int, limit: int, resolution: float = 0.1) -> int:
    """The largest number seen to pass, at most `limit`; 0 when not even 1 does.

    Doubles from `start` while it passes, halves while it does not, then bisects until what passes and what fails lie
    within `resolution` of each other. `passes` is asked at most once for a number.
    """
    good, bad = 0, limit + 1
    tried = max(1, min(start, limit))
    while True:
        if passes(tried):
            good = tried
        else:
            bad = tried
        if bad - good <= max(1, int(resolution * good)):
            return good
        if bad > limit and good < limit:
            tried = min(limit, 2 * good)
        elif good == 0:
            tried = bad // 2
        else:
            tried = (good + bad) // 2
