"""Self-attention with positions folded into the keys."""

import torch
from torch import Tensor

from oasr_backend.layers.attention import MASKED, PositionWeights, SelfAttention, scaled_dot_product
from oasr_backend.models.config import AttentionConfig
from tests.layers.weights import CPU, randn, random_state, reader

DIM, HEADS, FRAMES = 8, 2, 6
CONFIG = AttentionConfig(HEADS, HEADS, DIM // HEADS, "rel_pos", True, True, True)
SHAPES: dict[str, tuple[int, ...]] = {
    "a.pos_bias_u": (HEADS, DIM // HEADS),
    "a.pos_bias_v": (HEADS, DIM // HEADS),
    "a.linear_pos.weight": (DIM, DIM),
    **{f"a.linear_{part}.weight": (DIM, DIM) for part in "qkv"},
    **{f"a.linear_{part}.bias": (DIM,) for part in "qkv"},
    "a.linear_out.weight": (DIM, DIM),
    "a.linear_out.bias": (DIM,),
}


class WholeClip:
    """Every frame sees every other."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, key_bias: Tensor) -> Tensor:
        assert layer == 3
        return scaled_dot_product(query, key, value, key_bias.transpose(1, 2)[:, :, None, :])


class Place:
    """Positions that are projected already."""

    def __init__(self, place: Tensor, weights: PositionWeights):
        """`place` [B, n, dim]."""
        self._projected = (place @ weights.projection.T).unflatten(-1, (HEADS, -1))
        self._bias = (self._projected * weights.v).sum(-1)

    def projected(self, layer: int) -> Tensor:
        assert layer == 3
        return self._projected

    def bias(self, layer: int) -> Tensor:
        assert layer == 3
        return self._bias

    def rotation(self) -> tuple[Tensor, Tensor]:
        raise AssertionError("rel_pos rotates nothing")


def test_folded_keys_give_the_scores_of_separate_terms() -> None:
    state = random_state(SHAPES)
    attention = SelfAttention(reader(state), "a", DIM, CONFIG, CPU, torch.float32)
    normed, residual, place = randn(2, FRAMES, DIM), randn(2, FRAMES, DIM, seed=3), randn(1, FRAMES, DIM, seed=4)
    assert attention.position is not None
    out = attention(3, normed, residual, Place(place, attention.position), WholeClip())

    def heads(x: Tensor) -> Tensor:
        return x.view(x.shape[0], FRAMES, HEADS, -1).transpose(1, 2)

    q, k, v = (heads(normed @ state[f"a.linear_{part}.weight"].T + state[f"a.linear_{part}.bias"]) for part in "qkv")
    p = heads(place @ state["a.linear_pos.weight"].T)
    u, w = state["a.pos_bias_u"][:, None], state["a.pos_bias_v"][:, None]
    scores = ((q + u) @ k.transpose(-1, -2) + (q + w) @ p.transpose(-1, -2)) / (DIM // HEADS) ** 0.5
    mixed = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
    expected = residual + mixed @ state["a.linear_out.weight"].T + state["a.linear_out.bias"]
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-4)


def test_a_masked_key_has_no_weight() -> None:
    query, key, value = randn(1, 3, HEADS, 4), randn(1, 5, HEADS, 4, seed=6), randn(1, 5, HEADS, 4, seed=7)
    bias = randn(1, HEADS, 1, 5, seed=8)
    seen = scaled_dot_product(query, key[:, :3], value[:, :3], bias[..., :3])
    masked = scaled_dot_product(query, key, value, bias + torch.tensor([0.0, 0.0, 0.0, MASKED, MASKED]))
    torch.testing.assert_close(masked, seen)


def test_a_row_that_sees_nothing_is_finite() -> None:
    query = randn(1, 3, HEADS, 4)
    assert scaled_dot_product(query, query, query, torch.full((1, HEADS, 1, 3), MASKED)).isfinite().all()
