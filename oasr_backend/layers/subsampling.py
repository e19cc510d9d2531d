"""The convolutional front end: features to encoder frames."""

import torch
from torch import Tensor

from oasr_backend.checkpoints.weights import WeightReader
from oasr_backend.layers.convolution2d import Convolution2d
from oasr_backend.layers.product import make_product
from oasr_backend.models.config import EncoderConfig

# Encoder frames at a time: what lies between the convolutions should on CPU stay in the last cache.
_CPU_BLOCK, _GPU_BLOCK = 128, 4096
_OUT_NAMES = {"conv2d": "out.0", "conv2d6": "linear", "conv2d8": "linear"}


class ConvSubsampling:
    """Convolutions with ReLU, then a linear layer whose result is multiplied by `scale`."""

    def __init__(
        self, weights: WeightReader, config: EncoderConfig, scale: float, device: torch.device, dtype: torch.dtype
    ):
        dim = config.dim
        self._geometry = config.geometry
        bins = config.input_dim
        self._convolutions = []
        channels = 1
        for index, (kernel, stride) in enumerate(config.geometry.convolutions):
            name = f"encoder.embed.conv.{2 * index}"
            weight = weights.take(f"{name}.weight", dim, channels, kernel, kernel)
            bias = weights.take(f"{name}.bias", dim)
            self._convolutions.append(
                Convolution2d(weight, bias, stride, device, dtype, weights.quantization.covers(name))
            )
            bins = (bins - kernel) // stride + 1
            channels = dim
        name = f"encoder.embed.{_OUT_NAMES[config.front_end]}"
        # WeNet flattens (channel, bin); ours is (bin, channel). The scale is folded into the weights.
        weight = weights.take(f"{name}.weight", dim, dim * bins)
        weight = weight.view(dim, dim, bins).transpose(1, 2).reshape(dim, bins * dim)
        bias = weights.take(f"{name}.bias", dim)
        quantized = weights.quantization.covers(name)
        self._out = make_product(weight * scale, bias * scale, device, dtype, quantized=quantized)
        self._dtype = dtype

    def __call__(self, features: Tensor) -> Tensor:
        """`features` [B, T, bins] -> [B, frames_out(T), dim]; a frame depends on its own window alone."""
        frames = self._geometry.frames_out(features.shape[1])
        size = _CPU_BLOCK if features.device.type == "cpu" else _GPU_BLOCK
        if features.shape[0] * frames <= size:
            return self._block(features)
        rows = features.split(max(1, size // max(1, frames)))
        return torch.cat([self._rows(part, frames, size) for part in rows])

    def _rows(self, features: Tensor, frames: int, size: int) -> Tensor:
        """As `frames` encoder frames, at most `size` at a time."""
        if frames <= size:
            return self._block(features)
        blocks = []
        for start in range(0, frames, size):
            first = start * self._geometry.rate
            window = self._geometry.window(min(size, frames - start))
            blocks.append(self._block(features[:, first : first + window]))
        return torch.cat(blocks, dim=1)

    def _block(self, features: Tensor) -> Tensor:
        x = features.to(self._dtype)[..., None]
        for convolution in self._convolutions:
            x = convolution(x)
        return self._out(x.flatten(2))
