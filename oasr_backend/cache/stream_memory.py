"""The history of a streaming pass: paged keys and values, slotted convolution frames."""

import torch
from torch import Tensor

from oasr_backend.cache.attention_cache import AttentionCache, ChunkPlan
from oasr_backend.cache.cnn_cache import ConvolutionCache
from oasr_backend.layers.attention import scaled_dot_product
from oasr_backend.layers.convolution import pad_centred


class StreamMemory:
    """One step's view of the caches."""

    def __init__(self, attention: AttentionCache, convolution: ConvolutionCache, plan: ChunkPlan):
        self._attention = attention
        self._convolution = convolution
        self._plan = plan

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, key_bias: Tensor | None) -> Tensor:
        self._attention.write(layer, self._plan, key, value, key_bias)
        if self._plan.spans is None:
            return scaled_dot_product(query, *self._attention.gathered(layer, self._plan))
        rows = zip(query.split(1), self._attention.in_place(layer, self._plan), strict=True)
        return torch.cat([scaled_dot_product(row, *history) for row, history in rows])

    def extend(self, layer: int, gated: Tensor, kernel: int, causal: bool) -> Tensor:
        if causal:
            return self._convolution.extend(layer, self._plan, gated)
        # A centred convolution sees its own chunk only, as the models were trained to be streamed.
        return pad_centred(gated, self._plan.frames, kernel)

    def kept(self, x: Tensor) -> Tensor:
        return x
