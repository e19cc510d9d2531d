"""Where a row's history lies in the pool: runs of frames, as plain arithmetic."""

from collections.abc import Sequence

Span = tuple[int, int]
"""First row of the flat pool, and the row behind the last."""

# Costs of attention in gathered frames a row, measured at 16 queries, 4 heads of 64 and 1 to 8 rows: a call of its own
# for every row, and a frame that is read where it lies.
_CALL = 128
_FRAME = 0.6


def spans(pages: Sequence[int], first: int, end: int, block: int) -> tuple[Span, ...]:
    """Runs that hold the frames `first` .. `end` - 1 of a row whose page `i` of `pages` holds `i * block` and on."""
    found: list[Span] = []
    frame = max(0, first)
    while frame < end:
        page, place = divmod(frame, block)
        count = min(block - place, end - frame)
        start = pages[page] * block + place
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], start + count)
        else:
            found.append((start, start + count))
        frame += count
    return tuple(found)


def reads_in_place(visible: Sequence[int], padded: int) -> bool:
    """Whether attention of each row over its own `visible` frames beats one batch of `padded` gathered frames a row.

    Long histories cost their copy, and the longest row of a batch makes all of them as long.
    """
    if min(visible, default=0) < 1:
        return False
    return len(visible) == 1 or sum(visible) * _FRAME + len(visible) * _CALL < len(visible) * padded
