"""The shapes a step may run at, chosen before any graph or eager branch."""

from bisect import bisect_left


def width_ladder(cap: int, pad: bool, explicit: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Batch widths: the explicit ones and `cap`; else powers of two and `cap` when padding, else every width."""
    if explicit is not None:
        return tuple(sorted({*explicit, cap}))
    if not pad:
        return tuple(range(1, cap + 1))
    widths = []
    width = 1
    while width < cap:
        widths.append(width)
        width *= 2
    return (*widths, cap)


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def cache_ladder(capacity: int, knee: int = 512, growth: float = 1.5, tile: int = 64) -> tuple[int, ...]:
    """Cached lengths in frames: steps of `tile` up to `knee`, then growing by `growth`, ending at `capacity`."""
    linear_end = min(knee, capacity)
    rungs = set(range(0, linear_end, tile))
    rung = _round_up(linear_end, tile)
    while 0 < rung < capacity:
        rungs.add(rung)
        rung = max(_round_up(int(rung * growth), tile), rung + tile)
    rungs.add(capacity // tile * tile)
    return tuple(sorted(rungs))


def pick(ladder: tuple[int, ...], value: int, tile: int = 1) -> int:
    """Smallest rung that holds `value`, else `value` rounded up to `tile`."""
    index = bisect_left(ladder, value)
    return ladder[index] if index < len(ladder) else _round_up(value, tile)
