"""How a load is shared out over processes."""

# A chunk takes about 1.1 ms of a processor, so that a process with so many keeps a wide margin to being late itself.
_CHUNKS_PER_S = 200.0


def processes_for(streams: int, chunk_s: float, most: int) -> int:
    """The fewest processes, at most `most`, that keep the pace of so many streams in chunks of `chunk_s` seconds."""
    wanted = -(-streams // max(1, int(_CHUNKS_PER_S * chunk_s)))
    return max(1, min(wanted, most, streams))


def shares(streams: int, processes: int) -> list[range]:
    """The numbers of the streams of each process, in turn; no more processes than streams."""
    used = min(streams, processes)
    return [range(first, streams, used) for first in range(used)]
