"""How an offline batch is chosen, as pure rules, and their registry."""

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
