"""How an offline batch is chosen, as pure rules, and their registry."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice, takewhile

from oasr_backend.errors import ConfigError


@dataclass(frozen=True)
class BatchLimits:
    """What bounds a batch. Lengths are feature frames, ratios are off at 0."""

    max_rows: int
    max_frames: int | None = None
    """Most frames with padding: the longest times the rows."""
    max_pad_ratio: float = 0.0
    """Most frames with padding per frame without."""
    min_length_ratio: float = 0.0
    """Least length of the shortest per length of the longest."""
    window_factor: int = 4
    """The `window` policy looks at so many batches' worth of requests."""
    preferred: tuple[int, ...] = ()
    """Numbers of rows that a batch is cut down to, ascending."""
    max_packed_frames: int = 8192
    """Most encoder frames of a packed row."""
    subsampling: int = 4
    """Feature frames per encoder frame."""

    def allow(self, rows: int, shortest: int, longest: int, useful: int) -> bool:
        """Whether `rows` rows of these lengths, `useful` frames in all, may go together."""
        padded = longest * rows
        return (
            (self.max_frames is None or padded <= self.max_frames)
            and (self.max_pad_ratio <= 0 or padded <= self.max_pad_ratio * useful)
            and (self.min_length_ratio <= 0 or shortest >= self.min_length_ratio * longest)
        )


@dataclass(frozen=True)
class Candidate:
    """A waiting request as a rule sees it. Lower ranks go first; all that are overdue share the lowest."""

    frames: int
    rank: float = 0
    overdue: bool = False


BatchingPolicy = Callable[[Iterator[Candidate], BatchLimits], list[int]]

POLICIES: dict[str, BatchingPolicy] = {}


def register_batching_policy(name: str) -> Callable[[BatchingPolicy], BatchingPolicy]:
    """Registers a rule from the waiting requests, in the order in which they would go, to the indices of a batch.

    The first candidate should be among them, or it may wait for ever; when it is overdue, no guard may keep it back.
    """

    def register(policy: BatchingPolicy) -> BatchingPolicy:
        POLICIES[name] = policy
        return policy

    return register


def batching_policy(name: str) -> BatchingPolicy:
    """Raises ConfigError for a name that is not registered."""
    if name not in POLICIES:
        raise ConfigError(f"schedule_policy {name!r} is not supported; choose one of: {', '.join(sorted(POLICIES))}")
    return POLICIES[name]


def choose_batch(policy: BatchingPolicy, candidates: Iterable[Candidate], limits: BatchLimits) -> list[int]:
    """Indices of the next batch, ascending; cut to a preferred size unless the first candidate is overdue.

    Empty when there are fewer than the smallest preferred size: they wait for more.
    """
    stream = iter(candidates)
    first = next(stream, None)
    if first is None:
        return []
    chosen = sorted(policy(chain((first,), stream), limits))
    return chosen if first.overdue else chosen[: preferred_size(len(chosen), limits.preferred)]


def preferred_size(count: int, preferred: Sequence[int]) -> int:
    """Largest preferred size that `count` fills; `count` itself when none is preferred, 0 when all are larger."""
    return max((size for size in preferred if size <= count), default=0) if preferred else count


@register_batching_policy("fcfs")
def fcfs(candidates: Iterator[Candidate], limits: BatchLimits) -> list[int]:
    """The first, as many as fit padded to the longest; the very first always goes."""
    head = list(islice(candidates, limits.max_rows))
    longest = 0
    for rows, candidate in enumerate(head, 1):
        longest = max(longest, candidate.frames)
        if rows > 1 and not head[0].overdue and limits.max_frames is not None and longest * rows > limits.max_frames:
            return list(range(rows - 1))
    return list(range(len(head)))


@register_batching_policy("window")
def window(candidates: Iterator[Candidate], limits: BatchLimits) -> list[int]:
    """The least padded run of lengths that holds the first, among the first few batches' worth of its own rank."""
    seen = list(islice(candidates, limits.max_rows * limits.window_factor))
    peers = takewhile(lambda candidate: candidate.rank == seen[0].rank, seen)
    return best_run([candidate.frames for candidate in peers], limits)


def best_run(lengths: Sequence[int], limits: BatchLimits) -> list[int]:
    """Indices, by length, of the run that holds index 0 and wastes least; as many rows as the limits allow.

    Of runs that waste the same the shorter lengths win. Index 0 alone always goes.
    """
    if not lengths:
        return []
    order = sorted(range(len(lengths)), key=lambda index: (lengths[index], index))
    useful = [0, *accumulate(lengths[index] for index in order)]
    anchor = order.index(0)
    for rows in range(min(limits.max_rows, len(order)), 1, -1):
        best: tuple[int, int] | None = None
        for start in range(max(0, anchor - rows + 1), min(anchor, len(order) - rows) + 1):
            shortest, longest = lengths[order[start]], lengths[order[start + rows - 1]]
            held = useful[start + rows] - useful[start]
            waste = longest * rows - held
            if limits.allow(rows, shortest, longest, held) and (best is None or waste < best[0]):
                best = waste, start
        if best is not None:
            return order[best[1] : best[1] + rows]
    return [0]


@register_batching_policy("bucket")
def bucket(candidates: Iterator[Candidate], limits: BatchLimits) -> list[int]:
    """The first, and of all that wait, in order, those whose length suits the batch so far."""
    return _fill(enumerate(candidates), limits)


@register_batching_policy("sjf")
def sjf(candidates: Iterator[Candidate], limits: BatchLimits) -> list[int]:
    """Shortest first within a rank; overdue requests as they come."""
    waiting = list(enumerate(candidates))
    if waiting and not waiting[0][1].overdue:
        waiting.sort(key=lambda item: (item[1].rank, item[1].frames, item[0]))
    return _fill(iter(waiting), limits)


def _fill(candidates: Iterator[tuple[int, Candidate]], limits: BatchLimits) -> list[int]:
    """The first, then every one that the limits allow beside those already chosen; no guards when it is overdue."""
    chosen: list[int] = []
    shortest = longest = useful = 0
    flush = False
    for index, candidate in candidates:
        if not chosen:
            flush = candidate.overdue
            shortest = candidate.frames
        low, high = min(shortest, candidate.frames), max(longest, candidate.frames)
        total = useful + candidate.frames
        if chosen and not flush and not limits.allow(len(chosen) + 1, low, high, total):
            continue
        chosen.append(index)
        shortest, longest, useful = low, high, total
        if len(chosen) == limits.max_rows:
            break
    return chosen


def admit_streams(
    candidates: Sequence[Candidate], running: int, places: int, preferred: Sequence[int] = (), by_length: bool = True
) -> list[int]:
    """Indices of the waiting streams that start now, of candidates in the order in which they would go.

    Overdue ones go first, as they come; the others by rank and, `by_length`, the shorter first. With preferred
    numbers of running streams the sum is cut down to one, unless somebody is overdue.
    """
    free = max(0, places - running)
    overdue = [index for index, candidate in enumerate(candidates) if candidate.overdue]
    rest = [index for index, candidate in enumerate(candidates) if not candidate.overdue]
    if by_length:
        rest.sort(key=lambda index: (candidates[index].rank, candidates[index].frames))
    order = (overdue + rest)[:free]
    if not preferred or overdue:
        return order
    target = preferred_size(running + len(order), preferred)
    return order[: max(0, target - running)]
