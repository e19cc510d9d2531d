"""Facts as lines for people: pure rules from numbers to words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oasr_backend.inspection.facts import CheckpointFacts, ServiceFacts, TrainingFacts

# WeNet draws chunk sizes from 1 to 25 frames, and whole utterances.
_LARGEST_TRAINED = 25
_MODELS = {
    "oasr_streaming": "streams",
    "oasr_offline": "clips of samples",
    "oasr_transcribe": "audio files",
    "streaming_wenet": "streams, by WeNet's name",
    "attention_rescoring": "clips of samples, by WeNet's name",
}


@dataclass(frozen=True)
class Row:
    """One line of a report."""

    name: str
    value: str


def report(checkpoint: CheckpointFacts, services: Sequence[ServiceFacts]) -> list[Row]:
    """What was found, what will be used, and what to mind."""
    rows = list(_found(checkpoint))
    for service in services:
        rows += _used(service)
    rows += _graphs(services)
    rows += [Row("note", text) for text in notes(checkpoint, services)]
    return rows


def summary(checkpoint: CheckpointFacts, services: Sequence[ServiceFacts]) -> str:
    """The report in one line."""
    size = f"{checkpoint.architecture} of {checkpoint.parameters / 1e6:.1f} million parameters"
    used = services[0]
    parts = [size, f"{checkpoint.vocabulary} {checkpoint.units}", f"{used.dtype} on {used.device}"]
    parts += [f"{service.streams} streams" for service in services if service.streams]
    return f"{checkpoint.path}: {', '.join(parts)}"


def notes(checkpoint: CheckpointFacts, services: Sequence[ServiceFacts]) -> list[str]:
    """What makes results worse than they could be, each with what to do."""
    found: list[str] = []
    trained = checkpoint.training
    for service in services:
        step = service.step
        if step is None:
            continue
        if trained.static_chunk_size and step.frames != trained.static_chunk_size:
            found.append(
                f"trained for chunks of {trained.static_chunk_size} frames only and streamed in chunks of "
                f"{step.frames}: expect more errors; set chunk_size={trained.static_chunk_size}"
            )
        elif not trained.static_chunk_size and step.frames > _LARGEST_TRAINED:
            found.append(
                f"chunks of {step.frames} frames are larger than training has them (1 to {_LARGEST_TRAINED}); "
                "measure the accuracy"
            )
        if step.left_chunks >= 0 and not trained.varied_history:
            found.append(
                f"trained with all of the history and streamed with {step.left_chunks} chunks of it: measure the "
                "accuracy"
            )
    encoder = checkpoint.encoder
    if encoder is not None and encoder.kernel is not None and not encoder.causal and trained.streams:
        found.append(
            "its convolution is centred, so that a stream's text differs from that of the whole clip at the edges of "
            "chunks"
        )
    if not trained.streams:
        found.append("trained on whole clips only: it cannot stream")
    if not checkpoint.audio.normalised:
        found.append("no CMVN statistics: right only if it was trained without")
    methods = {service.decode_method for service in services}
    if checkpoint.decoder is not None and "attention_rescoring" not in methods:
        found.append("the attention decoder is loaded and not used unless asked: decode_method=attention_rescoring")
    return found


def client_rows(checkpoint: CheckpointFacts, services: Sequence[ServiceFacts], models: Sequence[str]) -> list[Row]:
    """What a client sends, and to which of `models`."""
    rows = [Row("clients send", f"{checkpoint.audio.sample_rate} Hz mono: WAV float32 in [-1, 1], or PCM int16")]
    step = next((service.step for service in services if service.step is not None), None)
    if step is not None:
        rows.append(
            Row("chunks", f"of any length, {step.samples} samples ({step.ms:g} ms) make one step; START, then END")
        )
    rows += [Row(name, what) for name, what in _MODELS.items() if name in models]
    return rows


def lines(rows: Sequence[Row]) -> list[str]:
    """Rows as text, values below each other."""
    width = max((len(row.name) for row in rows), default=0)
    return [f"{row.name:<{width}}  {row.value}" for row in rows]


def _found(facts: CheckpointFacts) -> Iterator[Row]:
    yield Row("checkpoint", f"{facts.path} ({facts.format}; {facts.weights}, {facts.megabytes:.1f} MB)")
    decoder = facts.decoder
    family = "" if decoder is None else ", U2++" if decoder.right_layers else ", U2"
    yield Row("architecture", f"{facts.architecture}{family}, {facts.parameters / 1e6:.2f} million parameters")
    encoder = facts.encoder
    if encoder is not None:
        heads = f"{encoder.heads} heads"
        if encoder.kv_heads != encoder.heads:
            heads += f" ({encoder.kv_heads} of keys and values)"
        parts = [
            f"{_count(encoder.layers, 'layer')} of {encoder.dim}",
            heads,
            f"feed-forward {encoder.ffn_dim}{' twice (macaron)' if encoder.macaron else ''}",
        ]
        if encoder.kernel is not None:
            side = "causal" if encoder.causal else "centred"
            parts.append(f"{side} convolution of {encoder.kernel} ({encoder.convolution_norm})")
        yield Row("encoder", ", ".join([*parts, encoder.position]))
        ms = encoder.rate * facts.audio.frame_shift_ms
        yield Row("front end", f"{encoder.front_end}: {encoder.rate} feature frames to one of the encoder ({ms:g} ms)")
    yield Row("vocabulary", f"{facts.vocabulary} units: {facts.units}")
    yield Row("trained for", _trained(facts.training))
    if decoder is not None:
        layers = _count(decoder.left_layers, "layer")
        if decoder.right_layers:
            layers += f" + {decoder.right_layers} from right to left (weight {decoder.reverse_weight:g})"
        yield Row("decoder", f"attention, {layers}; weight of CTC {decoder.ctc_weight:g}")
    if facts.quantization is not None:
        yield Row("quantization", facts.quantization)
    audio = facts.audio
    yield Row(
        "audio",
        f"{audio.sample_rate} Hz mono; {audio.dim} {audio.features} numbers per {audio.frame_length_ms:g} ms every "
        f"{audio.frame_shift_ms:g} ms{', normalised' if audio.normalised else ''}",
    )


def _trained(training: TrainingFacts) -> str:
    if not training.streams:
        return "whole clips only"
    if training.static_chunk_size:
        return f"chunks of {training.static_chunk_size} frames"
    history = "history of any length" if training.varied_history else "all of the history"
    return f"chunks of any size (dynamic: 1 to {_LARGEST_TRAINED} frames, and whole clips) with {history}"


def _used(service: ServiceFacts) -> Iterator[Row]:
    is_cpu = service.device == "cpu"
    where = f"{service.processor}, {_count(service.threads, 'thread')}" if is_cpu else service.processor
    yield Row(service.mode, f"{where}, {service.dtype}, {service.decode_method}")
    step = service.step
    if step is not None:
        history = "all of the history" if step.left_chunks < 0 else f"{step.left_chunks} chunks of history"
        yield Row(
            "steps",
            f"{step.frames} frames ({step.ms:g} ms) with {history}; the first text after {step.first_ms:g} ms of "
            f"audio (chunk and right context), then every {step.ms:g} ms",
        )
    if service.streams is not None:
        yield Row("streams", _streams(service))
    if service.longest_seconds is not None:
        rows = "" if service.batch is None else f"{service.batch} in a batch at the most, each "
        yield Row("clips", f"{rows}of {_duration(service.longest_seconds)} at the most")


def _graphs(services: Sequence[ServiceFacts]) -> Iterator[Row]:
    """Once where all services do the same."""
    told = {
        service.mode: "captured as CUDA graphs" if service.graphs.used else f"off: {service.graphs.reason}"
        for service in services
    }
    for text in dict.fromkeys(told.values()):
        modes = [mode for mode, one in told.items() if one == text]
        yield Row("graphs", text if len(modes) == len(told) else f"{', '.join(modes)}: {text}")


def _streams(service: ServiceFacts) -> str:
    pool = service.pool
    if pool is None:
        return f"{service.streams} at once; the cache is sized when the model is loaded, from the memory that is free"
    return (
        f"{pool.streams} at once, each sees its last {_duration(pool.seconds)}; {pool.mebibytes:,.0f} MiB of cache in "
        "all"
    )


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.3g} minutes" if seconds >= 60 else f"{seconds:.3g} s"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
