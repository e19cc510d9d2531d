"""A U2++ Conformer as a plain torch module, written to be exported: what serves as the peer under onnxruntime.

Weights keep the names of the checkpoint. The inputs are those of WeNet's own exports: a window of features, the
offset, the caches and their mask. Pointwise convolutions are matrix products, which onnxruntime prepacks and quantises
where it would not a convolution: a peer at least as fast as WeNet's.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from oasr_backend.models.config import WenetConfig

# WeNet's table of positions ends here.
POSITIONS = 5000


class PeerAttention(nn.Module):
    """Self-attention with WeNet's relative positions: those of the keys, projected over the whole cache."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        self.linear_q, self.linear_k = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.linear_v, self.linear_out = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.linear_pos = nn.Linear(dim, dim, bias=False)
        self.pos_bias_u = nn.Parameter(torch.empty(heads, self.head_dim))
        self.pos_bias_v = nn.Parameter(torch.empty(heads, self.head_dim))

    def forward(self, x: Tensor, place: Tensor, mask: Tensor, cache: Tensor | None) -> tuple[Tensor, Tensor]:
        """`x` [B, n, dim], `place` [B or 1, T + n, dim], `mask` [B, 1, 1, T + n] true where a key is seen, `cache`
        [B, heads, T, 2 d] -> [B, n, dim] and keys with values [B, heads, T + n, 2 d].
        """
        batch = x.shape[0]
        query = self.linear_q(x).view(batch, -1, self.heads, self.head_dim)
        key, value = (self._by_head(linear(x)) for linear in (self.linear_k, self.linear_v))
        both = torch.cat((key, value), dim=-1)
        if cache is not None:
            both = torch.cat((cache, both), dim=2)
            key, value = both.split(self.head_dim, dim=-1)
        position = self._by_head(self.linear_pos(place))
        of_key = (query + self.pos_bias_u).transpose(1, 2) @ key.transpose(-2, -1)
        of_position = (query + self.pos_bias_v).transpose(1, 2) @ position.transpose(-2, -1)
        scores = (of_key + of_position) * self.head_dim**-0.5
        weights = scores.masked_fill(~mask, -1e9).softmax(-1)
        out = (weights @ value).transpose(1, 2).reshape(batch, -1, self.heads * self.head_dim)
        return self.linear_out(out), both

    def _by_head(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], -1, self.heads, self.head_dim).transpose(1, 2)


class PeerConvolution(nn.Module):
    """The causal convolution module, its cache the module's input as WeNet has it."""

    def __init__(self, dim: int, kernel: int):
        super().__init__()
        self.pointwise_conv1 = nn.Conv1d(dim, 2 * dim, 1)
        self.depthwise_conv = nn.Conv1d(dim, dim, kernel, groups=dim)
        self.norm = nn.LayerNorm(dim)
        self.pointwise_conv2 = nn.Conv1d(dim, dim, 1)

    def forward(self, x: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        """`x` [B, n, dim], `cache` [B, K - 1, dim] -> [B, n, dim] and the next cache."""
        x = torch.cat((cache, x), dim=1)
        kept = x[:, -cache.shape[1] :]
        x = nn.functional.glu(_pointwise(self.pointwise_conv1, x), dim=-1)
        x = self.depthwise_conv(x.transpose(1, 2)).transpose(1, 2)
        return _pointwise(self.pointwise_conv2, nn.functional.silu(self.norm(x))), kept


def _pointwise(convolution: nn.Conv1d, x: Tensor) -> Tensor:
    return nn.functional.linear(x, convolution.weight.squeeze(-1), convolution.bias)


class PeerFeedForward(nn.Module):
    """W2 silu(W1 x)."""

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.w_2(nn.functional.silu(self.w_1(x)))


class PeerLayer(nn.Module):
    """A Conformer layer in macaron style."""

    def __init__(self, dim: int, heads: int, hidden: int, kernel: int):
        super().__init__()
        self.feed_forward_macaron, self.feed_forward = PeerFeedForward(dim, hidden), PeerFeedForward(dim, hidden)
        self.self_attn, self.conv_module = PeerAttention(dim, heads), PeerConvolution(dim, kernel)
        self.norm_ff_macaron, self.norm_ff = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.norm_mha, self.norm_conv, self.norm_final = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(
        self, x: Tensor, place: Tensor, mask: Tensor, attention_cache: Tensor | None, convolution_cache: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        x = x + 0.5 * self.feed_forward_macaron(self.norm_ff_macaron(x))
        attended, keys = self.self_attn(self.norm_mha(x), place, mask, attention_cache)
        x = x + attended
        convolved, frames = self.conv_module(self.norm_conv(x), convolution_cache)
        x = x + convolved
        x = x + 0.5 * self.feed_forward(self.norm_ff(x))
        return self.norm_final(x), keys, frames


class PeerSubsampling(nn.Module):
    """conv2d: two convolutions of kernel 3 and stride 2, then a linear layer."""

    def __init__(self, dim: int, bins: int):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, dim, 3, 2), nn.ReLU(), nn.Conv2d(dim, dim, 3, 2), nn.ReLU())
        self.out = nn.Sequential(nn.Linear(dim * (((bins - 1) // 2 - 1) // 2), dim))

    def forward(self, features: Tensor) -> Tensor:
        x = self.conv(features[:, None])
        return self.out(x.transpose(1, 2).flatten(2))


class PeerEncoder(nn.Module):
    """The modules of the encoder, under their names."""

    def __init__(self, config: WenetConfig):
        super().__init__()
        encoder = config.encoder
        assert encoder.convolution is not None
        self.dim = encoder.dim
        self.embed = PeerSubsampling(encoder.dim, encoder.input_dim)
        self.history = encoder.convolution.history
        self.encoders = nn.ModuleList(
            PeerLayer(encoder.dim, encoder.attention.heads, encoder.ffn_dim, encoder.convolution.kernel)
            for _ in range(encoder.layers)
        )
        self.after_norm = nn.LayerNorm(encoder.dim)


class PeerModel(nn.Module):
    """Encoder and CTC head; subclasses say what one call covers."""

    mean: Tensor
    scale: Tensor
    table: Tensor

    def __init__(self, config: WenetConfig, state: Mapping[str, Tensor]):
        """Raises ValueError for a model of another kind, RuntimeError for weights that do not fit."""
        super().__init__()
        _check(config)
        self.encoder = PeerEncoder(config)
        self.ctc = nn.ModuleDict({"ctc_lo": nn.Linear(config.encoder.dim, config.vocab_size)})
        mean, scale = (state.get(f"encoder.global_cmvn.{name}") for name in ("mean", "istd"))
        self.register_buffer("mean", torch.zeros(()) if mean is None else mean.float(), persistent=False)
        self.register_buffer("scale", torch.ones(()) if scale is None else scale.float(), persistent=False)
        self.register_buffer("table", _sinusoids(config.encoder.dim), persistent=False)
        self.load_state_dict({name: state[name].float() for name in self.state_dict() if name in state})
        self.eval()

    def embed(self, features: Tensor) -> Tensor:
        return self.encoder.embed((features - self.mean) * self.scale) * self.encoder.dim**0.5

    def log_probs(self, x: Tensor) -> Tensor:
        return self.ctc["ctc_lo"](self.encoder.after_norm(x)).log_softmax(-1)


class ChunkPeer(PeerModel):
    """One chunk of every stream of a batch, with caches of a fixed length."""

    def forward(
        self, chunk: Tensor, offset: Tensor, att_cache: Tensor, cnn_cache: Tensor, att_mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`chunk` [B, window, bins], `offset` [B] frames before it, `att_cache` [layers, B, heads, T, 2 d], `cnn_cache`
        [layers, B, K - 1, dim], `att_mask` [B, 1, 1, T + n] bool -> log-probabilities [B, n, V] and the next caches.
        """
        x = self.embed(chunk)
        length = att_cache.shape[3]
        index = offset[:, None] - length + torch.arange(length + x.shape[1])
        place = nn.functional.embedding(index.clamp_min(0), self.table)
        attention, convolution = [], []
        for number, layer in enumerate(self.encoder.encoders):
            x, keys, frames = layer(x, place, att_mask, att_cache[number], cnn_cache[number])
            attention.append(keys[:, :, -length:])
            convolution.append(frames)
        return self.log_probs(x), torch.stack(attention), torch.stack(convolution)


class ClipPeer(PeerModel):
    """A padded batch of whole clips."""

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """`features` [B, T, bins], `lengths` [B] encoder frames -> log-probabilities [B, n, V]."""
        x = self.embed(features)
        index = torch.arange(x.shape[1])
        mask = (index[None, :] < lengths[:, None])[:, None, None, :]
        place = self.table[: x.shape[1]][None]
        fresh = x.new_zeros(x.shape[0], self.encoder.history, x.shape[2])
        for layer in self.encoder.encoders:
            x, _, _ = layer(x, place, mask, None, fresh)
        return self.log_probs(x)


def _sinusoids(dim: int) -> Tensor:
    frequency = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angle = torch.arange(POSITIONS, dtype=torch.float64)[:, None] * frequency
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1).float()


def _check(config: WenetConfig) -> None:
    encoder = config.encoder
    convolution = encoder.convolution
    fits = (
        encoder.front_end == "conv2d"
        and encoder.attention.position == "rel_pos"
        and encoder.attention.heads == encoder.attention.kv_heads
        and encoder.macaron
        and encoder.normalize_before
        and encoder.activation == "swish"
        and convolution is not None
        and convolution.causal
        and convolution.norm == "layer_norm"
    )
    if not fits:
        raise ValueError(f"no peer for this {config.architecture}: only causal Conformers with conv2d and rel_pos")
