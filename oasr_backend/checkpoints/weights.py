"""Weights by name, every one accounted for."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from oasr_backend.errors import CheckpointError
from oasr_backend.quantization.rule import QuantizationRule

_SHOWN = 12


class WeightReader:
    """Hands out a checkpoint's tensors by name and remembers what is missing, misshapen or never asked for.

    A model's constructor takes what it needs; `close` then raises one error that lists every difference.
    """

    def __init__(self, state: Mapping[str, Tensor], source: str, quantization: QuantizationRule | None = None):
        """`source` names the weights in errors; `quantization` says which layers are quantized (None: none)."""
        self.quantization = quantization or QuantizationRule()
        self._state = dict(state)
        self._source = source
        self._taken: set[str] = set()
        self._missing: list[str] = []
        self._wrong: list[str] = []

    def has(self, name: str) -> bool:
        return name in self._state

    def take(self, name: str, *shape: int) -> Tensor:
        """The tensor `name` as float32, of exactly `shape`; zeros stand in for a missing one until `close` raises."""
        self._taken.add(name)
        tensor = self._state.get(name)
        if tensor is None:
            self._missing.append(f"{name} {list(shape)}")
        elif tuple(tensor.shape) != shape:
            self._wrong.append(f"{name} is {list(tensor.shape)}, expected {list(shape)}")
        elif not torch.is_floating_point(tensor):
            self._wrong.append(f"{name} holds {tensor.dtype}, expected floating point")
        else:
            # A copy: the file may be replaced while the server runs, and a mapped page would go with it.
            copy = tensor.to(torch.float32, copy=True)
            # The sum is quicker than looking at each number, and passes on any that is wrong.
            if not copy.sum().isfinite() and not copy.isfinite().all():
                self._wrong.append(f"{name} holds numbers that are not finite")
            return copy
        return torch.zeros(shape)

    def ignore(self, names: Iterable[str]) -> None:
        """Account for tensors that inference does not need."""
        self._taken.update(names)

    def names(self, prefix: str) -> list[str]:
        return [name for name in self._state if name.startswith(prefix)]

    def close(self) -> None:
        """Raises CheckpointError when the checkpoint and the model differ in any weight."""
        unexpected = sorted(
            f"{name} {list(tensor.shape)}" for name, tensor in self._state.items() if name not in self._taken
        )
        parts = [
            f"{title}: {_listing(found)}"
            for title, found in (
                ("missing", self._missing),
                ("wrong", self._wrong),
                ("not part of this architecture", unexpected),
            )
            if found
        ]
        if parts:
            raise CheckpointError(
                f"{self._source}: the weights do not fit train.yaml; {'; '.join(parts)}. "
                "Use the train.yaml that was written beside these weights."
            )


def _listing(names: list[str]) -> str:
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
