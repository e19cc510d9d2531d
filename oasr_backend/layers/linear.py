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


class Linear:
    """y = activation(x Wᵀ + b) (+ residual), weights prepared once for the device they run on.

    On CPU the weight is packed into oneDNN's blocked layout, so that no call reorders it again.
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
        self._weight = weight.to(device, dtype).contiguous()
        self._bias = None if bias is None else bias.to(device, dtype).contiguous()
        self._packed = device.type == "cpu" and _onednn_multiplies(dtype)
        if self._packed:
            self._weight = torch.ops.mkldnn._reorder_linear_weight(self._weight)

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """`x` [..., in] -> [..., out]; `residual` [..., out] is added after the product (no activation then)."""
        if self._packed:
            if residual is None:
                # The exact GELU, not its tanh approximation.
                algorithm = "none" if self._activation == "gelu" else ""
                return torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, self._activation, [], algorithm)
            return torch.ops.mkldnn._linear_pointwise.binary(x, residual, self._weight, self._bias, "add")
        y = ELEMENTWISE[self._activation](torch.nn.functional.linear(x, self._weight, self._bias))
        return y if residual is None else y + residual


def _onednn_multiplies(dtype: torch.dtype) -> bool:
    if not torch.backends.mkldnn.is_available():
        return False
    return dtype is torch.float32 or (dtype is torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())
