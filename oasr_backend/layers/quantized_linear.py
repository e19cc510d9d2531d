"""Matrix products of int8 weights and activations that are rounded row by row."""

import contextlib
import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from oasr_backend.errors import ConfigError
from oasr_backend.layers.linear import ELEMENTWISE, IN_PLACE
from oasr_backend.models.config import Activation
from oasr_backend.quantization.int8_weight import LARGEST, SMALLEST_SCALE, Int8Weight

# Without VNNI pairs of products are added in 16 bits, which eight bits of both factors would overflow.
_CPU_LARGEST = 63
_CPU_ENGINE = "fbgemm"
# torch._int_mm takes more than 16 rows, and sizes that are multiples of 8.
_CUDA_ROWS, _CUDA_MULTIPLE = 32, 8


def require_int8(device: torch.device) -> None:
    """Raises ConfigError where the processor or this build of PyTorch has no int8 products."""
    if device.type == "cpu":
        has_tensors = hasattr(torch, "_make_per_channel_quantized_tensor")
        found = has_tensors and _CPU_ENGINE in torch.backends.quantized.supported_engines
    else:
        found = hasattr(torch, "_int_mm") and torch.cuda.get_device_capability(device) >= (7, 5)
    if not found:
        raise ConfigError(f"quantization needs int8 products, which PyTorch does not have on {device}; leave it out")


class QuantizedLinear:
    """y = activation(x Wᵀ + b) (+ residual), W rounded per output channel and x per row by its own largest value.

    A row's result never depends on the rows beside it. Sums are exact; results are float32 until the end.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        device: torch.device,
        dtype: torch.dtype,
        activation: Activation = "none",
    ):
        """`weight` [out, in] and `bias` [out], any floating dtype. Raises ConfigError: see `require_int8`."""
        require_int8(device)
        self.out_features, self.in_features = weight.shape
        self._dtype = dtype
        self._activation = IN_PLACE.get(activation, ELEMENTWISE[activation])
        bias = torch.zeros(self.out_features) if bias is None else bias
        self._bias = bias.to(device, torch.float32).contiguous()
        product = _cpu_product if device.type == "cpu" else _cuda_product
        self._multiply, self._largest = product(Int8Weight.of(weight), device)

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """`x` [..., in] -> [..., out]; `residual` [..., out] is added after the product (no activation then)."""
        rows = x.reshape(-1, self.in_features).float()
        # Two passes that only read are faster than one of absolute values that writes them.
        scales = torch.maximum(rows.amax(-1, keepdim=True), rows.amin(-1, keepdim=True).neg_())
        scales = scales.div_(self._largest).clamp_min_(SMALLEST_SCALE)
        y = self._multiply((rows / scales).contiguous())
        torch.addcmul(self._bias, y, scales, out=y)
        if residual is not None:
            y.add_(residual.reshape(y.shape))
        else:
            y = self._activation(y)
        return y.to(self._dtype).view(*x.shape[:-1], self.out_features)


_Product = tuple[Callable[[Tensor], Tensor], int]


def _cpu_product(weight: Int8Weight, device: torch.device) -> _Product:
    """The product with rows [n, in] of numbers up to the one given, which it rounds: [n, out] float32."""
    zeros = torch.zeros(len(weight.scales), dtype=torch.long)
    with _engine(_CPU_ENGINE), warnings.catch_warnings():
        # Quantized tensors are said to be on their way out; this is the only way to these kernels.
        warnings.simplefilter("ignore", UserWarning)
        rounded = torch._make_per_channel_quantized_tensor(weight.values.cpu(), weight.scales.cpu().double(), zeros, 0)
        packed = torch.ops.quantized.linear_prepack(rounded, None)
    product = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32

    def multiply(rows: Tensor) -> Tensor:
        return product(rows, 1.0, _CPU_LARGEST + 1, packed)

    return multiply, _CPU_LARGEST


def _cuda_product(weight: Int8Weight, device: torch.device) -> _Product:
    """As `_cpu_product`, with all of eight bits."""
    out, inner = weight.values.shape
    padding = (0, -inner % _CUDA_MULTIPLE, 0, -out % _CUDA_MULTIPLE)
    values = torch.nn.functional.pad(weight.values, padding).to(device).t()
    scales = weight.scales.to(device)

    def multiply(rows: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(
            rows.round().to(torch.int8), (0, padding[1], 0, max(0, _CUDA_ROWS - rows.shape[0]))
        )
        return torch._int_mm(padded, values)[: rows.shape[0], :out].float().mul_(scales)

    return multiply, LARGEST


@contextlib.contextmanager
def _engine(name: str) -> Iterator[None]:
    """Which library packs; the choice is the whole process's."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = name
    try:
        yield
    finally:
        torch.backends.quantized.engine = before
