"""The beams of all streams as tensors, one row a stream."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass
class BeamState:
    """[streams, beam] each. A prefix has a part that ends in blank and one that ends in its last token.

    A part has the sum of its alignments' probabilities, the probability of its best alignment (both natural
    logarithms in float64, so that an hour's sum keeps its small differences), that alignment's node in the token trie,
    and the frame and log-probability at the peak of its last token.
    """

    blank: Tensor
    token: Tensor
    blank_best: Tensor
    token_best: Tensor
    blank_node: Tensor
    token_node: Tensor
    blank_peak_frame: Tensor
    token_peak_frame: Tensor
    blank_peak: Tensor
    token_peak: Tensor
    last: Tensor
    """Last token, -1 for the empty prefix."""
    hash: Tensor
    """Of the whole prefix: equal prefixes are found by it."""
    bias: Tensor
    """What hotwords have added, float64."""
    bias_state: Tensor
    """Node of the stream's hotword automaton."""

    @classmethod
    def empty(cls, streams: int, beam: int, device: torch.device) -> "BeamState":
        """Streams at their start: the empty prefix, and nothing beside it."""
        shape = (streams, beam)

        def numbers(value: float) -> Tensor:
            return torch.full(shape, value, dtype=torch.float64, device=device)

        def integers(value: int) -> Tensor:
            return torch.full(shape, value, dtype=torch.int64, device=device)

        none = float("-inf")
        state = cls(
            blank=numbers(none),
            token=numbers(none),
            blank_best=numbers(none),
            token_best=numbers(none),
            blank_node=integers(0),
            token_node=integers(0),
            blank_peak_frame=integers(0),
            token_peak_frame=integers(0),
            blank_peak=numbers(none),
            token_peak=numbers(none),
            last=integers(-1),
            hash=integers(0),
            bias=numbers(0.0),
            bias_state=integers(0),
        )
        state.blank[:, 0] = state.blank_best[:, 0] = 0.0
        # Prefixes that are not there differ from all that are.
        state.hash[:, 1:] = -torch.arange(1, beam, device=device)
        return state

    def rows(self, index: Tensor) -> "BeamState":
        """A copy of the rows of `index` [n]."""
        return BeamState(*(getattr(self, field.name).index_select(0, index) for field in fields(self)))

    def first(self, count: int) -> "BeamState":
        """A view of the first `count` rows."""
        return BeamState(*(getattr(self, field.name)[:count] for field in fields(self)))

    def last_rows(self, first: int) -> "BeamState":
        """A view of the rows from `first` on."""
        return BeamState(*(getattr(self, field.name)[first:] for field in fields(self)))

    def write(self, index: Tensor, rows: "BeamState") -> None:
        """Puts `rows` where `index` [n] says."""
        for field in fields(self):
            getattr(self, field.name).index_copy_(0, index, getattr(rows, field.name))

    def grown(self, streams: int) -> "BeamState":
        """The same with room for more streams."""
        more = BeamState.empty(streams - self.blank.shape[0], self.blank.shape[1], self.blank.device)
        return BeamState(*(torch.cat((getattr(self, field.name), getattr(more, field.name))) for field in fields(self)))

    def reset(self, rows: Sequence[int]) -> None:
        """Streams back to their start."""
        index = torch.tensor(rows, device=self.blank.device)
        self.write(index, BeamState.empty(len(rows), self.blank.shape[1], self.blank.device))
