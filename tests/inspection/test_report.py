"""From facts to words, without a checkpoint."""

from dataclasses import replace

from oasr_backend.inspection.facts import (
    AudioFacts,
    CheckpointFacts,
    DecoderFacts,
    EncoderFacts,
    GraphFacts,
    PoolFacts,
    ServiceFacts,
    StepFacts,
    TrainingFacts,
)
from oasr_backend.inspection.report import Row, client_rows, lines, notes, report, summary

CHECKPOINT = CheckpointFacts(
    path="/models/own",
    format="wenet",
    weights="final.pt",
    megabytes=198.4,
    parameters=48_310_000,
    architecture="conformer",
    encoder=EncoderFacts(12, 256, 4, 4, 2048, True, "rel_pos", 8, True, "layer_norm", "conv2d", 4),
    decoder=DecoderFacts(3, 3, 0.3, 0.5),
    vocabulary=5002,
    units="BPE pieces",
    training=TrainingFacts(True, 0, False),
    audio=AudioFacts(16000, "fbank", 80, 25.0, 10.0, True),
    quantization=None,
)
STREAMING = ServiceFacts(
    mode="streaming",
    device="cpu",
    processor="A processor",
    dtype="bfloat16",
    threads=3,
    decode_method="ctc_greedy",
    graphs=GraphFacts(False, "nothing is captured on cpu"),
    step=StepFacts(16, 10240, 640.0, 685.0, -1),
    streams=128,
    pool=PoolFacts(128, 327.68, 6012.4),
)
OFFLINE = replace(
    STREAMING, mode="offline", threads=1, step=None, streams=None, pool=None, batch=32, longest_seconds=14400.0
)


def text(checkpoint: CheckpointFacts = CHECKPOINT, *services: ServiceFacts) -> str:
    return "\n".join(lines(report(checkpoint, services or (STREAMING, OFFLINE))))


def test_all_that_was_found_and_is_used_is_there() -> None:
    told = text()
    for part in (
        "/models/own (wenet; final.pt, 198.4 MB)",
        "conformer, U2++, 48.31 million parameters",
        "12 layers of 256, 4 heads, feed-forward 2048 twice (macaron), causal convolution of 8 (layer_norm), rel_pos",
        "conv2d: 4 feature frames to one of the encoder (40 ms)",
        "5002 units: BPE pieces",
        "any size (dynamic: 1 to 25 frames, and whole clips) with all of the history",
        "3 layers + 3 from right to left (weight 0.3); weight of CTC 0.5",
        "16000 Hz mono; 80 fbank numbers per 25 ms every 10 ms, normalised",
        "A processor, 3 threads, bfloat16, ctc_greedy",
        "16 frames (640 ms) with all of the history; the first text after 685 ms",
        "128 at once, each sees its last 5.46 minutes; 6,012 MiB of cache in all",
        "A processor, 1 thread, bfloat16",
        "32 in a batch at the most, each of 240 minutes at the most",
    ):
        assert part in told
    assert told.count("off: nothing is captured on cpu") == 1
    assert "note" in told and "decode_method=attention_rescoring" in told


def test_values_stand_below_each_other() -> None:
    assert lines([Row("a", "1"), Row("long", "2")]) == ["a     1", "long  2"]
    assert lines([]) == []


def test_a_report_in_one_line() -> None:
    assert summary(CHECKPOINT, (STREAMING, OFFLINE)) == (
        "/models/own: conformer of 48.3 million parameters, 5002 BPE pieces, bfloat16 on cpu, 128 streams"
    )
    assert "streams" not in summary(CHECKPOINT, (OFFLINE,))


def test_a_model_of_another_family_has_fewer_lines() -> None:
    told = text(replace(CHECKPOINT, encoder=None, decoder=None), replace(STREAMING, step=None, pool=None))
    assert "conformer, 48.31" in told
    assert "encoder" not in told and "decoder" not in told
    assert "sized when the model is loaded" in told


def test_what_a_checkpoint_was_not_trained_for_is_noted() -> None:
    whole = replace(CHECKPOINT, training=TrainingFacts(False, 0, False))
    assert "whole clips only: it cannot stream" in "\n".join(notes(whole, (OFFLINE,)))
    static = replace(CHECKPOINT, training=TrainingFacts(True, 8, True))
    assert "set chunk_size=8" in "\n".join(notes(static, (STREAMING,)))
    assert "chunks of 8 frames" in text(static)
    fitting = replace(STREAMING, step=replace(STREAMING.step, frames=8))
    assert "expect more errors" not in "\n".join(notes(static, (fitting,)))
    long = replace(STREAMING, step=replace(STREAMING.step, frames=26))
    assert "larger than training has them" in "\n".join(notes(CHECKPOINT, (long,)))
    bounded = replace(STREAMING, step=replace(STREAMING.step, left_chunks=4))
    assert "streamed with 4 chunks of it" in "\n".join(notes(CHECKPOINT, (bounded,)))
    varied = replace(CHECKPOINT, training=TrainingFacts(True, 0, True))
    assert "chunks of it" not in "\n".join(notes(varied, (bounded,)))
    centred = replace(CHECKPOINT, encoder=replace(CHECKPOINT.encoder, causal=False))
    assert "convolution is centred" in "\n".join(notes(centred, (STREAMING,)))
    plain = replace(CHECKPOINT, audio=replace(CHECKPOINT.audio, normalised=False))
    assert "no CMVN statistics" in "\n".join(notes(plain, (STREAMING,)))
    rescored = replace(STREAMING, decode_method="attention_rescoring")
    assert notes(CHECKPOINT, (rescored,)) == []


def test_graphs_that_differ_are_told_apart() -> None:
    on = replace(STREAMING, device="cuda", processor="cuda", graphs=GraphFacts(True, ""))
    off = replace(
        OFFLINE, device="cuda", processor="cuda", graphs=GraphFacts(False, "use_offline_cuda_graphs is false")
    )
    told = text(CHECKPOINT, on, off)
    assert "streaming: captured as CUDA graphs" in told
    assert "offline: off: use_offline_cuda_graphs is false" in told
    assert "threads" not in told


def test_clients_are_told_what_to_send_and_to_which_of_the_models() -> None:
    told = "\n".join(lines(client_rows(CHECKPOINT, (STREAMING, OFFLINE), ("oasr_streaming", "streaming_wenet"))))
    assert "16000 Hz mono: WAV float32 in [-1, 1], or PCM int16" in told
    assert "10240 samples (640 ms)" in told
    assert "streaming_wenet" in told and "oasr_offline" not in told
    assert "chunks" not in "\n".join(lines(client_rows(CHECKPOINT, (OFFLINE,), ("oasr_offline",))))
