"""What a user configures, in groups. A group's docstring is its heading in the documentation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from oasr_backend.cache.history import UNLIMITED
from oasr_backend.features.spec import FeatureSpec

AUDIO_SCALE = 32768.0
"""The value of `audio_scale` that leaves the checkpoint's own in force."""


@dataclass(frozen=True, kw_only=True)
class CheckpointFields:
    """Checkpoint"""

    ckpt_dir: str = ""
    """Checkpoint directory, or `org/name` or `org/name@revision` on the Hugging Face Hub. A copy is kept under
    `HF_HOME`; with `HF_HUB_OFFLINE=1` only that copy is used."""
    checkpoint_name: str | None = None
    """Weights file inside the directory; None: the format's own, `final.pt` for WeNet."""
    architecture: str | None = None
    """A registered architecture to build, whatever the checkpoint names; None: the one that it names."""
    unit_table: str | None = None
    """File of units to use instead of the checkpoint's own; None: its `units.txt` or `words.txt`."""
    sentencepiece_model: str | None = None
    """Model that turns tokens into text; None: the unit table does."""
    quantization: str | Mapping[str, Any] | None = None
    """Scheme of the matrix products: `int8_w8a8`, or as text a JSON object of `scheme`, `ignore` (globs of module
    names) and `module_types` (docs/quantization.md); None: the checkpoint's, else none."""


@dataclass(frozen=True, kw_only=True)
class DeviceFields:
    """Device and memory"""

    device: str = "auto"
    """`auto` (CUDA where present, else CPU), `cpu`, `cuda` or `cuda:N`."""
    dtype: str | torch.dtype = "auto"
    """`auto` (float16 on CUDA; on CPU bfloat16 where it is native, else float32), `float32`, `bfloat16`, `float16`, or
    one of these as a torch.dtype."""
    num_threads: int | None = None
    """Threads of the forward pass on CPU; None: the cores the process may use."""
    gpu_memory_utilization: float = 0.90
    """Share of the GPU's memory that weights, cache and activations may take together; read when a pool is derived."""
    max_pinned_audio_seconds: float = 300.0
    """Longest audio that one request may hold in page-locked memory; longer audio uses ordinary memory."""
    max_pinned_audio_total_seconds: float = 3600.0
    """Page-locked audio of all requests together; past it new requests use ordinary memory."""
    max_staging_elems: int = 256 << 20
    """Largest staging buffer, in elements, that is kept for the next batch."""
    gc_freeze: bool = True
    """Keeps what exists after construction out of later garbage collections, each of which would stop every stream."""
    tuning: str = "off"
    """Search for the fastest kernels at the start."""
    nvtx: bool = False
    """Marks steps and their stages as ranges for a profiler: torch.profiler, and Nsight Systems on CUDA."""


@dataclass(frozen=True, kw_only=True)
class FeatureFields:
    """Features"""

    feature_config: FeatureSpec | None = None
    """Features to use instead of the checkpoint's, with a warning where they differ; as text a JSON object."""
    audio_scale: float = AUDIO_SCALE
    """Factor for samples in [-1, 1]. A value other than 32768 wins over the checkpoint's, with a warning."""


@dataclass(frozen=True, kw_only=True)
class StreamingFields:
    """Streaming"""

    service_mode: str = "mixed"
    """`mixed`, or `streaming` or `offline` to reject the other kind of request; `offline` builds no cache."""
    chunk_size: int = 16
    """Encoder frames per streaming step, and the most that a stream may ask for."""
    num_left_chunks: int = UNLIMITED
    """Chunks of history that a streaming step sees; -1: all."""
    finalize_silence_pad: bool = True
    """Feeds a window of silence after the last sample, so that the last word is decoded whole."""
    recycle_streaming_history: bool = False
    """At its page ceiling a stream drops its oldest page; otherwise it ends with finish_reason `length`."""
    streaming_cohort_admit: bool = True
    """Among waiting streams that are not overdue the shorter start first; otherwise the older."""
    partial_decode_interval: int = 1
    """A stream gives a partial output every so many steps; 0 or less: none."""
    overlap_partial_readback: bool = False
    """Emits each partial output a step late, while the next step runs."""
    streaming_feature_lookahead: bool = True
    """Computes features of the next step while a GPU runs the forward pass of this one; on a CPU it does not."""
    vad: Mapping[str, Any] | None = None
    """Options of voice activity detection; None: off."""


@dataclass(frozen=True, kw_only=True)
class CacheFields:
    """Attention cache"""

    block_size_frames: int = 16
    """Encoder frames per page."""
    max_num_blocks: int | None = None
    """Pages in the pool; None: what all streams can address, as far as memory allows."""
    max_blocks_per_seq: int = 512
    """Most pages that a stream holds."""
    cache_memory_share: float = 0.25
    """Share of the host's memory that a derived pool may take on a CPU."""
    use_paged_cache: bool = True
    """False: the dense runtime, one stream at a time; slow, for comparison."""


@dataclass(frozen=True, kw_only=True)
class BatchingFields:
    """Batching"""

    max_batch_size: int = 32
    """Live streams, and clips in an offline batch."""
    max_batch_frames: int | None = None
    """Most feature frames of an offline batch, padding included; None: 60,000."""
    preferred_batch_size: tuple[int, ...] | None = None
    """Numbers of rows that batches, and running streams when more are admitted, are cut down to, ascending; who has
    waited `max_wait_time` is never held back. One number or a list will do."""
    schedule_policy: str = "window"
    """How an offline batch is chosen: `window` (least padding round the first in line), `bucket` (whoever suits the
    first), `sjf` (shortest first), `fcfs` (as they come), or another registered policy."""
    length_window_factor: int = 4
    """The `window` policy chooses from so many batches' worth of the first in line."""
    length_bucket_ratio: float = 0.0
    """Least length of the shortest clip of a batch, as a share of the longest; 0: any. `fcfs` looks at no lengths."""
    max_offline_pad_ratio: float = 4.0
    """Most frames of a batch with padding per frame without; 0: any. `fcfs` looks at no lengths."""
    max_wait_time: float = 0.2
    """Seconds after which a waiting request goes before all that are not overdue, whatever their priority."""
    partition_policy: str | None = None
    """How a chosen batch is cut into forward passes: `frames`, `count`, `packing`, or another registered policy; None:
    `packing` with `enable_sequence_packing`, else `frames`."""
    enable_sequence_packing: bool | None = False
    """Offline passes as gapless rows instead of padded batches; None: on CPU, where the model can run them."""
    max_packed_frames: int = 8192
    """Most encoder frames in a packed row."""


@dataclass(frozen=True, kw_only=True)
class OfflineFields:
    """Offline clips"""

    max_audio_seconds: float | None = None
    """Longest clip; None: 600, and 14,400 with `long_form`."""
    long_form: bool = False
    """Cuts clips longer than a window into windows that share audio, recognises them side by side and joins the
    texts."""
    long_form_window_seconds: float = 30.0
    """Length of a window."""
    long_form_overlap_seconds: float = 1.0
    """Audio that neighbouring windows share."""
    overlap_admit: bool = False
    """Prepares clips in a thread of its own; one that cannot be prepared fails as an output and not at the call."""
    offline_collate_prefetch: bool = True
    """Prepares the next batch while a GPU runs this one, and with `offline_decode_overlap` queues it; on a CPU it does
    not."""
    offline_decode_overlap: bool = True
    """Decodes a batch while the forward pass of the next one runs, which takes `offline_collate_prefetch`; on a CPU,
    where nothing is gained, it does not."""


@dataclass(frozen=True, kw_only=True)
class DecodingFields:
    """Decoding"""

    decode_method: str | None = None
    """A registered decode strategy: `ctc_greedy`, `ctc_prefix_beam` or `attention_rescoring`; a request may choose
    another. None: `ctc_prefix_beam` with `ctc_decoder_config`, else `ctc_greedy`."""
    decode_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Options of the decode strategy, by name; as text a JSON object."""
    decoder_type: str = "ctc_cuda"
    """`ctc_cuda`: the strategy that `decode_method` names; `ctc_wfst`: a search over a graph."""
    ctc_decoder_config: Mapping[str, Any] | None = None
    """Options of the prefix beam search, which it chooses; the same as `decode_options` with `ctc_prefix_beam`."""
    wfst_decoder_config: Mapping[str, Any] | None = None
    """Options of the graph search."""
    fst_path: str | None = None
    """OpenFst graph for `ctc_wfst`."""
    rescoring_ctc_weight: float | None = None
    """Weight of the CTC score beside the attention decoder's; None: the checkpoint's."""
    rescoring_reverse_weight: float | None = None
    """Share of the right-to-left decoder beside the left-to-right one; None: the checkpoint's."""
    endpointing: bool = False
    """Makes what was said before a pause final while the stream goes on; a stream may choose for itself."""
    endpoint_silence_ms: float = 1000.0
    """Silence after speech that ends a segment, in milliseconds."""
    endpoint_start_ms: float = 5000.0
    """Silence with no speech before it that ends a segment, in milliseconds."""
    endpoint_max_ms: float = 20000.0
    """The longest segment, in milliseconds."""
    endpoint_history: str = "reset"
    """`reset`: with endpointing the encoder begins anew where speech sets on behind a pause; `keep`: it goes on."""


@dataclass(frozen=True, kw_only=True)
class AutoregressiveFields:
    """Autoregressive decoding"""

    decode_steps_per_tick: int = 32
    """Most decoder steps in one engine step."""
    max_tick_ms: float = 25.0
    """Milliseconds after which an engine step begins no decoder step; 0: no limit."""
    max_decode_slots: int | None = None
    """Most requests that are being decoded; None: `max_batch_size`."""
    decode_admit_window_ms: float = 0.0
    """Milliseconds that a request waits for others to be decoded with."""
    decode_kv_budget_gib: float | None = None
    """Memory of the decoder's keys and values; None: derived, 0: no limit."""
    max_new_tokens: int = 448
    """Most tokens of an output."""
    llm_prompt: str | None = None
    """Prompt of a model that takes one; None: its own."""
    transducer_max_sym_per_frame: int = 10
    """Most tokens that a transducer emits on one frame."""


@dataclass(frozen=True, kw_only=True)
class GraphFields:
    """CUDA graphs"""

    use_cuda_graphs: bool = True
    """Captures encoder steps as graphs, on CUDA; on a CPU there are none, and the settings of graphs take their
    defaults only. False: no offline ones either."""
    streaming_graph_batch_ladder: tuple[int, ...] | None = None
    """Widths that a streaming step is padded to, ascending, `max_batch_size` always among them; None: see
    `streaming_graph_pad_batch`."""
    streaming_graph_pad_batch: bool | None = None
    """Pads a streaming step to the next power of two; None: where steps are captured at more than one length of
    history."""
    streaming_graph_cache_growth: float = 1.5
    """Growth of the cached lengths that streaming steps read on CUDA, above 512 frames; 1: steps of 64 frames."""
    streaming_graph_max_shapes: int = 512
    """Most shapes of streaming steps that are captured, those before the engine is ready included; others run
    eagerly."""
    use_offline_cuda_graphs: bool = True
    """Captures offline forward passes as graphs, each shape when it first comes."""
    offline_graph_batch_buckets: tuple[int, ...] | None = None
    """Batch sizes that are captured, ascending, wider batches run eagerly; None: the preferred ones, else powers of
    two."""
    offline_graph_frame_granularity: int = 64
    """Feature frames that the length of an offline batch is rounded up to on CUDA."""
    offline_graph_max_frames: int = 4096
    """Longest batch that is captured, in feature frames; longer ones run eagerly."""
    offline_graph_max_captures: int = 64
    """Most shapes of offline batches that are captured; others run eagerly."""
    use_feature_cuda_graphs: bool = False
    """Captures feature extraction as graphs."""
    feature_graph_batch_buckets: tuple[int, ...] | None = None
    """Batch sizes at which feature extraction is captured, ascending; None: the preferred ones."""
    use_ctc_cuda_graphs: bool = False
    """Captures CTC decoding as graphs."""
    use_transducer_cuda_graphs: bool = True
    """Captures transducer decoding as graphs."""


GROUPS = (
    CheckpointFields,
    DeviceFields,
    FeatureFields,
    StreamingFields,
    CacheFields,
    BatchingFields,
    OfflineFields,
    DecodingFields,
    AutoregressiveFields,
    GraphFields,
)
