"""How an offline batch is chosen and cut, as pure rules, and their registries."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oasr_backend.errors import ConfigError


@dataclass(frozen=True)
class BatchLimits:
    """What bounds a batch: rows, and feature frames with padding."""

    max_rows: int
    max_frames: int


BatchingPolicy = Callable[[Sequence[int], BatchLimits], list[int]]

POLICIES: dict[str, BatchingPolicy] = {}


def register_batching_policy(name: str) -> Callable[[BatchingPolicy], BatchingPolicy]:
    """Registers a rule from the waiting requests' costs in frames, in order, to the indices of the next batch."""

    def register(policy: BatchingPolicy) -> BatchingPolicy:
        POLICIES[name] = policy
        return policy

    return register


def batching_policy(name: str) -> BatchingPolicy:
    """Raises ConfigError for a name that is not registered."""
    if name not in POLICIES:
        raise ConfigError(f"schedule_policy {name!r} is not supported; choose one of: {', '.join(sorted(POLICIES))}")
    return POLICIES[name]


@register_batching_policy("fcfs")
def fcfs(costs: Sequence[int], limits: BatchLimits) -> list[int]:
    """The oldest, as many as fit padded to the longest; the first always goes."""
    chosen: list[int] = []
    longest = 0
    for index, cost in enumerate(costs[: limits.max_rows]):
        longest = max(longest, cost)
        if chosen and longest * (len(chosen) + 1) > limits.max_frames:
            break
        chosen.append(index)
    return chosen


PartitionPolicy = Callable[[Sequence[int], BatchLimits], list[list[int]]]

PARTITIONS: dict[str, PartitionPolicy] = {}


def register_partition_policy(name: str) -> Callable[[PartitionPolicy], PartitionPolicy]:
    """Registers a rule from a chosen batch's costs in frames to the indices of each forward pass; each index once."""

    def register(policy: PartitionPolicy) -> PartitionPolicy:
        PARTITIONS[name] = policy
        return policy

    return register


def partition_policy(name: str) -> PartitionPolicy:
    """Raises ConfigError for a name that is not registered."""
    if name not in PARTITIONS:
        raise ConfigError(f"partition_policy {name!r} is not supported; choose one of: {', '.join(sorted(PARTITIONS))}")
    return PARTITIONS[name]


@register_partition_policy("frames")
def frames(costs: Sequence[int], limits: BatchLimits) -> list[list[int]]:
    """By length; a part is closed where one clip more would pass the rows or the padded frames of a batch."""
    parts: list[list[int]] = []
    for index in sorted(range(len(costs)), key=costs.__getitem__):
        part = parts[-1] if parts else []
        full = len(part) >= limits.max_rows or costs[index] * (len(part) + 1) > limits.max_frames
        if not part or full:
            parts.append([index])
        else:
            part.append(index)
    return [sorted(part) for part in parts]
