"""Recorded values of the pure rules."""

import ast
from pathlib import Path

_LINES = (Path(__file__).parent / "data" / "rules" / "rules.expected.txt").read_text(encoding="utf-8").splitlines()


def cache_ladders() -> list[tuple[int, tuple[int, ...]]]:
    """(capacity, rungs)."""
    ladders = []
    for line in _LINES[:9]:
        capacity, count, rungs = line.split(maxsplit=2)
        values = tuple(ast.literal_eval(rungs))
        assert len(values) == int(count)
        ladders.append((int(capacity), values))
    return ladders


def width_ladders() -> list[tuple[int, ...]]:
    """For caps 1, 6, 32 and 64."""
    lists = _LINES[9][: _LINES[9].rindex("]") + 1].replace("] [", "], [")
    return [tuple(ladder) for ladder in ast.literal_eval(f"[{lists}]")]


def padded_shapes() -> tuple[int, int]:
    """Shapes of 64 streams and 512 frames of cache: with width padding, and without."""
    padded, exact = _LINES[9].split()[-2:]
    return int(padded), int(exact)


def chosen_runs() -> tuple[list[int], list[int], list[int]]:
    """Three batches of a window: without a guard, and of one anchor with a tight and a loose padding ratio."""
    tight, loose = ast.literal_eval(_LINES[11].replace("] [", "], ["))
    return ast.literal_eval(_LINES[10]), tight, loose


def padding_of_the_mix() -> tuple[float, float, float]:
    """Padding of first come, and of windows of 4 and 8 batches, over a mix of lengths."""
    _, fifo, _, window4, _, window8 = _LINES[19].split()
    return float(fifo), float(window4), float(window8)


def frame_counts() -> list[tuple[int, int]]:
    """(samples, frames)."""
    return ast.literal_eval(_LINES[12])


def chunked_frames() -> list[tuple[int, int]]:
    """(new frames, samples left behind) of a stream that is fed 10,240 samples again and again."""
    rows = [[int(value) for value in line.split()] for line in _LINES[13:19]]
    return [(frames, tail) for _, frames, tail, _ in rows]
