"""Matrix products with their activation and residual fused where the processor's library can."""

from collections.abc import Callable

import torch
from torch import Tensor

from oasr_backend.models.config import Activation

ELEMENTWISE: dict[Activation, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "swish": torch.nn.functional.silu,
    "relu": torch.nn.functional.relu,
    "gelu": torch.nn.functional.gelu,
}

# Below this many rows a small float32 product is over before oneDNN has prepared it (see docs/benchmarks.md).
_FEW_ROWS = 64
_SMALL_WEIGHT = 1 << 18


class Linear:
    """y = activation(x Wᵀ + b) (+ residual), weights prepared once for the device they run on.

    On CPU the weight is packed into oneDNN's blocked layout, so that no call reorders it again; small float32 weights
    are kept plain as well, for small batches.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        device: torch.device,
        dtype: torch.dtype,
        activation: Activation = "none",
    ):
        """`weight` [out, in] and `bias` [out], any floating dtype."""
        self.out_features, self.in_features = weight.shape
        self._activation: Activation = activation
        plain = weight.to(device, dtype).contiguous()
        self._bias = None if bias is None else bias.to(device, dtype).contiguous()
        self._packed: Tensor | None = None
        if device.type == "cpu" and _onednn_multiplies(dtype):
            self._packed = torch.ops.mkldnn._reorder_linear_weight(plain)
        is_small = dtype is torch.float32 and plain.numel() < _SMALL_WEIGHT
        self._plain = plain if self._packed is None or is_small else None

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """`x` [..., in] -> [..., out]; `residual` [..., out] is added after the product (no activation then)."""
        packed = self._packed
        if packed is None or (self._plain is not None and x.numel() < _FEW_ROWS * self.in_features):
            assert self._plain is not None
            y = torch.nn.functional.linear(x, self._plain, self._bias)
            return ELEMENTWISE[self._activation](y) if residual is None else y.add_(residual)
        if residual is not None:
            return torch.ops.mkldnn._linear_pointwise.binary(x, residual, packed, self._bias, "add")
        # The exact GELU, not its tanh approximation.
        algorithm = "none" if self._activation == "gelu" else ""
        return torch.ops.mkldnn._linear_pointwise(x, packed, self._bias, self._activation, [], algorithm)


def _onednn_multiplies(dtype: torch.dtype) -> bool:
    if not torch.backends.mkldnn.is_available():
        return False
    return dtype is torch.float32 or (dtype is torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())
