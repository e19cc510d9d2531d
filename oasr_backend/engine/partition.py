"""How a chosen batch is cut into forward passes, as pure rules, and their registry."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from oasr_backend.engine.batching import BatchLimits, preferred_size
from oasr_backend.errors import ConfigError

PartitionPolicy = Callable[[Sequence[int], BatchLimits], list[list[int]]]

PARTITIONS: dict[str, PartitionPolicy] = {}


def register_partition_policy(name: str) -> Callable[[PartitionPolicy], PartitionPolicy]:
    """Registers a rule from a chosen batch's lengths in frames to the indices of each forward pass; each index once."""

    def register(policy: PartitionPolicy) -> PartitionPolicy:
        PARTITIONS[name] = policy
        return policy

    return register


def partition_policy(name: str) -> PartitionPolicy:
    """Raises ConfigError for a name that is not registered."""
    if name not in PARTITIONS:
        raise ConfigError(f"partition_policy {name!r} is not supported; choose one of: {', '.join(sorted(PARTITIONS))}")
    return PARTITIONS[name]


def _by_length(lengths: Sequence[int]) -> list[int]:
    return sorted(range(len(lengths)), key=lengths.__getitem__)


@register_partition_policy("count")
def count(lengths: Sequence[int], limits: BatchLimits) -> list[list[int]]:
    """By length into preferred sizes, largest first; without any, into as few nearly equal parts as rows allow."""
    if len(lengths) <= limits.max_rows and not limits.preferred:
        return [list(range(len(lengths)))] if lengths else []
    order = _by_length(lengths)
    if not limits.preferred:
        parts = -(-len(order) // limits.max_rows)
        edges = [part * len(order) // parts for part in range(parts + 1)]
        return [sorted(order[start:end]) for start, end in pairwise(edges)]
    cut: list[list[int]] = []
    while order:
        most = min(len(order), limits.max_rows)
        # What is left below the smallest preferred size goes as it is.
        size = preferred_size(most, limits.preferred) or most
        cut.append(sorted(order[:size]))
        order = order[size:]
    return cut


@register_partition_policy("frames")
def frames(lengths: Sequence[int], limits: BatchLimits) -> list[list[int]]:
    """By length; a part is closed where one clip more would pass the rows or the padded frames of a batch."""
    parts: list[list[int]] = []
    for index in _by_length(lengths):
        part = parts[-1] if parts else []
        padded = lengths[index] * (len(part) + 1)
        full = len(part) >= limits.max_rows or (limits.max_frames is not None and padded > limits.max_frames)
        if not part or full:
            parts.append([index])
        else:
            part.append(index)
    return [sorted(part) for part in parts]


@register_partition_policy("packing")
def packing(lengths: Sequence[int], limits: BatchLimits) -> list[list[int]]:
    """By length; a part is closed where its packed row would pass `max_packed_frames` encoder frames."""
    parts: list[list[int]] = []
    held = 0
    for index in _by_length(lengths):
        size = max(1, lengths[index] // limits.subsampling)
        if not parts or held + size > limits.max_packed_frames:
            parts.append([])
            held = 0
        parts[-1].append(index)
        held += size
    return [sorted(part) for part in parts]
