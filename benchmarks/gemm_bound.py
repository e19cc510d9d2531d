"""The matrix products of one streaming step and nothing else: what the processor allows.

    python -m benchmarks.gemm_bound --json FILE [--streams 1 8 32] [--rounds 20]

Linear layers, and the front end's convolutions as products over unfolded patches; every layer has weights of its own.
A product runs by the fastest of the library's ways to do it (prepacked by oneDNN, plain, plain into a kept buffer).
Attention, depthwise convolutions, norms, activations, biases and copies are left out.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import oasr_backend.checkpoints.wenet  # noqa: F401 (registers the format)
from benchmarks import command
from benchmarks.make_checkpoint import make_checkpoint
from benchmarks.reporting import Report, Row, publish
from benchmarks.timing import Times, timed
from oasr_backend.checkpoints.base import load_checkpoint
from oasr_backend.models.config import WenetConfig

_TRIALS = 3
_SQUARE = 2048


@dataclass(frozen=True)
class Product:
    """[rows, inner] x [inner, outer], `count` times with different weights."""

    name: str
    rows: int
    inner: int
    outer: int
    count: int = 1

    @property
    def flops(self) -> int:
        """A multiplication and an addition are two."""
        return 2 * self.rows * self.inner * self.outer * self.count


def step_products(config: WenetConfig, streams: int, chunk: int = 16) -> tuple[Product, ...]:
    """The products of a step of `streams` streams, in their order."""
    encoder = config.encoder
    dim, attention = encoder.dim, encoder.attention
    products = []
    frames, bins, channels = encoder.geometry.window(chunk), encoder.input_dim, 1
    for index, (kernel, stride) in enumerate(encoder.geometry.convolutions):
        frames, bins = (frames - kernel) // stride + 1, (bins - kernel) // stride + 1
        patch = kernel * kernel * channels
        products.append(Product(f"convolution {index + 1}", streams * frames * bins, patch, dim))
        channels = dim
    rows, layers = streams * chunk, encoder.layers
    products.append(Product("front end out", rows, bins * dim, dim))
    query, key = attention.heads * attention.head_dim, attention.kv_heads * attention.head_dim
    if attention.position == "rel_pos":
        products.append(Product("positions", rows, dim, layers * query))
    halves = layers * (2 if encoder.macaron else 1)
    products += [
        Product("feed forward up", rows, dim, encoder.ffn_dim, halves),
        Product("feed forward down", rows, encoder.ffn_dim, dim, halves),
        Product("query, key, value", rows, dim, query + 2 * key, layers),
        Product("attention out", rows, query, dim, layers),
    ]
    if encoder.convolution is not None:
        products += [
            Product("pointwise 1", rows, dim, 2 * dim, layers),
            Product("pointwise 2", rows, dim, dim, layers),
        ]
    return (*products, Product("head", rows, dim, config.vocab_size))


class PreparedProduct:
    """A product with its operands, weights prepared, bound to the fastest way to run it."""

    def __init__(self, product: Product, dtype: torch.dtype):
        self.product = product
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(product.rows, product.inner, generator=generator).to(dtype)
        weights = [
            torch.randn(product.outer, product.inner, generator=generator).to(dtype) for _ in range(product.count)
        ]
        seconds = math.inf
        self.way, self.run = "", lambda: None
        for way, run in _ways(x, weights):
            taken = _least_seconds(run)
            if taken < seconds:
                seconds, self.way, self.run = taken, way, run


def _ways(x: Tensor, weights: list[Tensor]) -> Iterator[tuple[str, Callable[[], None]]]:
    """How the library may multiply `x` [rows, inner] by each of `weights` [outer, inner]."""
    out = x.new_empty(x.shape[0], weights[0].shape[0])
    transposed = [weight.t() for weight in weights]
    packed = []
    if x.dtype is torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported():
        packed = [torch.ops.mkldnn._reorder_linear_weight(weight) for weight in weights]

    def plain() -> None:
        for weight in weights:
            torch.nn.functional.linear(x, weight)

    def into_kept_buffer() -> None:
        for weight in transposed:
            torch.mm(x, weight, out=out)

    def prepacked() -> None:
        for weight in packed:
            torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")

    yield "plain", plain
    yield "plain, kept buffer", into_kept_buffer
    if packed:
        yield "prepacked", prepacked


def _least_seconds(run: Callable[[], None]) -> float:
    run()
    return min(timed(run)() for _ in range(_TRIALS))


class GemmBound:
    """All products of a step, one after another."""

    def __init__(self, config: WenetConfig, streams: int, dtype: torch.dtype, chunk: int = 16):
        with torch.inference_mode():
            self.products = [PreparedProduct(one, dtype) for one in step_products(config, streams, chunk)]

    @property
    def flops(self) -> int:
        return sum(one.product.flops for one in self.products)

    def step(self) -> float:
        """Seconds of one step's products."""
        return sum(self.by_product().values())

    @torch.inference_mode()
    def by_product(self) -> dict[str, float]:
        """Seconds of every product of one step."""
        return {one.product.name: timed(one.run)() for one in self.products}


def square_gflops(dtype: torch.dtype) -> float:
    """The rate of one large product: how near the others come to what the library can do."""
    with torch.inference_mode():
        square = PreparedProduct(Product("square", _SQUARE, _SQUARE, _SQUARE), dtype)
        return square.product.flops / _least_seconds(square.run) / 1e9


def model_config(checkpoint: Path) -> WenetConfig:
    """The configuration of a checkpoint, which is made with random weights when it is not there."""
    config = load_checkpoint(make_checkpoint(checkpoint)).model
    assert isinstance(config, WenetConfig)
    return config


def main() -> None:
    parser = command.make_parser(__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=20)
    arguments = command.parse(parser)
    dtype = command.dtype_of(arguments)
    config = model_config(arguments.checkpoint)
    bounds = {streams: GemmBound(config, streams, dtype) for streams in arguments.streams}
    turns: dict[int, list[dict[str, float]]] = {streams: [] for streams in bounds}
    for _ in range(arguments.rounds + 1):
        for streams, bound in bounds.items():
            turns[streams].append(bound.by_product())

    steps: list[Row] = []
    tables: dict[str, list[Row]] = {"step": steps}
    for streams, bound in bounds.items():
        # The first turn touches the weights for the first time.
        kept = turns[streams][1:]
        total = Times.of_seconds([sum(turn.values()) for turn in kept])
        gflops = bound.flops / total.median / 1e6
        steps.append({"streams": streams, **total.columns(), "GFLOP": bound.flops / 1e9, "GFLOP/s": gflops})
        tables[f"{streams} streams by product"] = [
            _product_row(one, Times.of_seconds([turn[one.product.name] for turn in kept])) for one in bound.products
        ]
    square = square_gflops(dtype)
    publish(
        Report(
            benchmark="gemm_bound",
            dtype=command.dtype_name(dtype),
            threads=arguments.threads,
            settings={"rounds": arguments.rounds, "chunk": 16, "square": _SQUARE, "square_gflops": square},
            tables=tables,
            ratios={f"gflops_{row['streams']}_streams": float(row["GFLOP/s"] or 0) for row in steps},
            notes=[f"one product of {_SQUARE} x {_SQUARE} x {_SQUARE}: {square:.0f} GFLOP/s"],
        ),
        arguments.json,
    )


def _product_row(prepared: PreparedProduct, times: Times) -> Row:
    product = prepared.product
    return {
        "product": product.name,
        "rows": product.rows,
        "inner": product.inner,
        "outer": product.outer,
        "count": product.count,
        "way": prepared.way,
        **times.columns(),
        "GFLOP/s": product.flops / times.median / 1e6,
    }


if __name__ == "__main__":
    main()
