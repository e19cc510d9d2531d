"""Matrix products with their activation and residual fused where the processor's library can."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from oasr_backend.models.config import Activation

ELEMENTWISE: dict[Activation, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "swish": torch.nn.functional.silu,
    "relu": torch.nn.functional.relu,
    "gelu": torch.nn.functional.gelu,
}
IN_PLACE: dict[Activation, Callable[[Tensor], Tensor]] = {
    "swish": partial(torch.nn.functional.silu, inplace=True),
    "gelu": torch.ops.aten.gelu_,
}

# Without AVX-512: below this many rows a float32 product is over before oneDNN has prepared it (docs/benchmarks.md).
_FEW_ROWS = 64
_SMALL_WEIGHT = 1 << 18


class Linear:
    """y = activation(x Wᵀ + b) (+ residual), weights prepared once for the device they run on.

    On CPU a weight is packed into oneDNN's blocked layout, so that no call reorders it again. In float32 without
    AVX-512 those that make vectors shorter are kept plain, because nothing is gained by packing, and small ones in both
    ways.
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
        # oneDNN's float32 kernels lose more by a fused exponential than a pass of its own costs (docs/benchmarks.md).
        apart = dtype is torch.float32 and activation in IN_PLACE
        self._activation: Activation = "none" if apart else activation
        self._then = IN_PLACE[activation] if apart else None
        plain = weight.to(device, dtype).contiguous()
        self._bias = None if bias is None else bias.to(device, dtype).contiguous()
        self._packed: Tensor | None = None
        self._turns = device.type == "cpu" and dtype is torch.float32 and not _has_avx512()
        if onednn_multiplies(device, dtype) and not (self._turns and self.out_features <= self.in_features):
            self._packed = torch.ops.mkldnn._reorder_linear_weight(plain)
        is_small = self._turns and plain.numel() < _SMALL_WEIGHT
        self._plain = plain if self._packed is None or is_small else None

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """`x` [..., in] -> [..., out]; `residual` [..., out] is added after the product (no activation then)."""
        plain, packed = self._plain, self._packed
        if plain is not None and self._turns and x.numel() < _FEW_ROWS * self.in_features:
            y = self._turned(x, plain)
        elif packed is not None:
            if residual is not None:
                return torch.ops.mkldnn._linear_pointwise.binary(x, residual, packed, self._bias, "add")
            # The exact GELU, not its tanh approximation.
            algorithm = "none" if self._activation == "gelu" else ""
            y = torch.ops.mkldnn._linear_pointwise(x, packed, self._bias, self._activation, [], algorithm)
            return y if self._then is None else self._then(y)
        else:
            assert plain is not None
            y = torch.nn.functional.linear(x, plain, self._bias)
        if residual is not None:
            return y.add_(residual)
        return self._then(y) if self._then is not None else ELEMENTWISE[self._activation](y)

    def _turned(self, x: Tensor, weight: Tensor) -> Tensor:
        """The product as (W xᵀ)ᵀ, which the library does faster where there are few rows."""
        columns = x.reshape(-1, self.in_features).t()
        y = weight @ columns if self._bias is None else torch.addmm(self._bias[:, None], weight, columns)
        return y.t().contiguous().view(*x.shape[:-1], self.out_features)


def onednn_multiplies(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether oneDNN has kernels for this dtype on this device."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    return dtype is torch.float32 or (dtype is torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _has_avx512() -> bool:
    return torch.backends.cpu.get_cpu_capability() == "AVX512"
