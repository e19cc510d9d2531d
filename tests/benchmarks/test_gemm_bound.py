"""The matrix products of a step."""

import torch

from benchmarks.gemm_bound import GemmBound, Product, step_products
from oasr_backend.models.config import AttentionConfig, ConvolutionConfig, DecoderConfig, EncoderConfig, WenetConfig
from oasr_backend.models.geometry import FRONT_ENDS


def config(layers: int, dim: int, ffn_dim: int, vocabulary: int) -> WenetConfig:
    encoder = EncoderConfig(
        input_dim=80,
        dim=dim,
        layers=layers,
        attention=AttentionConfig(4, 4, dim // 4, "rel_pos", True, True, True),
        ffn_dim=ffn_dim,
        ffn_bias=True,
        activation="swish",
        macaron=True,
        convolution=ConvolutionConfig(8, True, "layer_norm", True),
        normalize_before=True,
        final_norm=True,
        front_end="conv2d",
        geometry=FRONT_ENDS["conv2d"],
    )
    decoder = DecoderConfig(True, 4, ffn_dim, 3, 3, True, 0.3, 0.3)
    return WenetConfig("conformer", vocabulary, 0, True, 0, 2, 2, encoder, decoder)


def test_a_product_counts_a_multiplication_and_an_addition() -> None:
    assert Product("some", 2, 3, 5, count=7).flops == 2 * 2 * 3 * 5 * 7


def test_the_products_of_a_step_are_those_of_the_architecture() -> None:
    products = {one.name: one for one in step_products(config(12, 256, 2048, 5000), streams=3)}
    # 67 frames of 80 bins -> 33 x 39 -> 16 x 19.
    assert (products["convolution 1"].rows, products["convolution 1"].inner) == (3 * 33 * 39, 9)
    assert (products["convolution 2"].rows, products["convolution 2"].inner) == (3 * 16 * 19, 9 * 256)
    assert (products["front end out"].rows, products["front end out"].inner) == (3 * 16, 19 * 256)
    of_layers = 24 * 2 * 256 * 2048 + 12 * (3 + 1 + 2 + 1) * 256 * 256
    per_row = of_layers + 12 * 256 * 256 + 256 * 5000 + 19 * 256 * 256
    convolutions = 33 * 39 * 9 * 256 + 16 * 19 * 9 * 256 * 256
    assert sum(one.flops for one in products.values()) == 2 * 3 * (16 * per_row + convolutions)


def test_every_product_runs_and_is_timed() -> None:
    bound = GemmBound(config(2, 16, 32, 50), streams=2, dtype=torch.float32)
    seconds = bound.by_product()
    assert list(seconds) == [one.name for one in step_products(config(2, 16, 32, 50), 2)]
    assert all(one > 0 for one in seconds.values())
    assert bound.flops == sum(one.product.flops for one in bound.products)
