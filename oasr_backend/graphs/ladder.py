"""The shapes a step may run at, chosen before any graph or eager branch."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass


def width_ladder(
    cap: int, pad: bool, explicit: tuple[int, ...] | None = None, preferred: Sequence[int] = ()
) -> tuple[int, ...]:
    """Batch widths: the explicit ones and `cap`; else powers of two and `cap` when padding, else every width.

    `preferred` widths are rungs in any case.
    """
    if explicit is not None:
        return tuple(sorted({*explicit, *preferred, cap}))
    return tuple(sorted({*preferred, *(_powers_of_two(cap) if pad else range(1, cap + 1))}))


def _powers_of_two(cap: int) -> tuple[int, ...]:
    """1, 2, 4 … below `cap`, then `cap`."""
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


def block_ladder(max_blocks: int, block_size: int, chunk: int, growth: float = 1.5) -> tuple[int, ...]:
    """Blocks that a step reads: those of a new chunk behind each rung of cached frames, the last one `max_blocks`."""
    rungs = cache_ladder(max(0, max_blocks * block_size - chunk), growth=growth)[:-1]
    blocks = {-(-(rung + chunk) // block_size) for rung in rungs}
    return tuple(sorted({count for count in blocks if count < max_blocks} | {max_blocks}))


def pick(ladder: tuple[int, ...], value: int, tile: int = 1) -> int:
    """Smallest rung that holds `value`, else `value` rounded up to `tile`."""
    index = bisect_left(ladder, value)
    return ladder[index] if index < len(ladder) else _round_up(value, tile)


def pads_widths(setting: bool | None, captures: bool, cache_rungs: int) -> bool:
    """Whether a step is padded to the next width; None: where steps are captured at more than one cached length.

    With one cached length exact widths are few shapes, and padding would only add work.
    """
    return captures and cache_rungs > 1 if setting is None else setting


def prewarm_shapes(widths: Sequence[int], rungs: Sequence[int], max_shapes: int) -> tuple[tuple[int, int], ...]:
    """(width, rung) of the steps to capture before the first, at most `max_shapes`, largest first.

    Where not all fit, the low widths and the widest stay, each at every rung; at least the low rungs of the widest.
    """
    kept = max_shapes // len(rungs)
    if kept < 1:
        chosen = [(widths[-1], rung) for rung in rungs[:max_shapes]]
    else:
        low = widths if kept >= len(widths) else widths[: kept - 1]
        chosen = [(width, rung) for width in sorted({*low, widths[-1]}) for rung in rungs]
    return tuple(sorted(chosen, reverse=True))


def batch_buckets(cap: int, explicit: Sequence[int] | None = None, preferred: Sequence[int] = ()) -> tuple[int, ...]:
    """Rows of captured offline passes: the explicit ones, else the preferred ones, else powers of two and `cap`."""
    if explicit is not None:
        return tuple(explicit)
    return tuple(preferred) or _powers_of_two(cap)


@dataclass(frozen=True)
class OfflineShape:
    """What an offline pass is padded to, and whether it is captured at that."""

    rows: int
    frames: int
    is_captured: bool


@dataclass(frozen=True)
class OfflineShapes:
    """The rule of offline shapes, in rows and feature frames."""

    buckets: tuple[int, ...]
    granularity: int
    max_frames: int
    """Longest pass that is captured."""
    max_area: int
    """Most frames of a pass, padding and rows of padding included."""

    def of(self, rows: int, frames: int) -> OfflineShape:
        """What `rows` clips of up to `frames` frames run at: in time always padded, in rows only when captured."""
        long = _round_up(frames, self.granularity)
        index = bisect_left(self.buckets, rows)
        if index == len(self.buckets) or long > self.max_frames or self.buckets[index] * long > self.max_area:
            return OfflineShape(rows, long, False)
        return OfflineShape(self.buckets[index], long, True)
