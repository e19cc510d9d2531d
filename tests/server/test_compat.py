"""The two public clients of WeNet's Triton server, call by call, against the names that they know."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_aio

from oasr_backend.serve import RunningServer
from oasr_backend.server.compat import COMPAT_NAMES
from tests.server.support import (
    CHUNK,
    CLIPS,
    NOTHING,
    OFFLINE,
    PROTOCOLS,
    RATE,
    STREAMING,
    Pipeline,
    Stream,
    Wire,
    clip,
    code_of,
    cut,
    inputs_of,
    new_id,
    noise,
    references,
    refusal,
    status_of,
    text_of,
    together,
)

LIVE, WHOLE = "streaming_wenet", "attention_rescoring"
FIRST_ID = 10086
CONTEXT_7, NO_CONTEXT = 11040, 13600
"""Samples of a first chunk: of (16 - 1) * 4 + 7 frames and of (16 + 2 + 2) * 4 + 3, two more each, 10 ms a frame."""


def rows_of(pieces: Sequence[np.ndarray], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Samples zero-padded to [B, width], and their true lengths [B, 1]."""
    samples = np.zeros((len(pieces), width), dtype=np.float32)
    for row, piece in zip(samples, pieces):
        row[: len(piece)] = piece
    return samples, np.array([[len(piece)] for piece in pieces], dtype=np.int32)


def tensors(samples: np.ndarray, lengths: np.ndarray) -> list[Any]:
    """The inputs of both clients."""
    found = [
        triton_grpc.InferInput("WAV", samples.shape, "FP32"),
        triton_grpc.InferInput("WAV_LENS", lengths.shape, "INT32"),
    ]
    found[0].set_data_from_numpy(samples)
    found[1].set_data_from_numpy(lengths)
    return found


def calls(samples: np.ndarray, sequence_id: int, first: int) -> list[dict[str, Any]]:
    """The requests of an utterance: all chunks full, the last one padded, START and END by flags."""
    pieces = [samples[:first], *(samples[begin : begin + CHUNK] for begin in range(first, len(samples), CHUNK))]
    return [
        {
            "model_name": LIVE,
            "inputs": tensors(*rows_of([piece], first if number == 0 else CHUNK)),
            "outputs": [triton_grpc.InferRequestedOutput("TRANSCRIPTS")],
            "sequence_id": sequence_id,
            "sequence_start": number == 0,
            "sequence_end": number == len(pieces) - 1,
        }
        for number, piece in enumerate(pieces)
    ]


def plain_texts(server: RunningServer, samples: np.ndarray, first: int) -> list[str]:
    """Every answer of `oasr_streaming` to the same chunks, without padding."""
    pieces = [samples[:first], *(samples[begin : begin + CHUNK] for begin in range(first, len(samples), CHUNK))]
    with Wire(server) as wire:
        return Stream(wire).play(pieces)


async def client_of_tasks(
    server: RunningServer, utterances: Sequence[np.ndarray], tasks: int, first: int
) -> dict[int, list[str]]:
    """The asyncio client: every task streams its share one after the other under one id, `10086 + task`."""
    client = triton_aio.InferenceServerClient(server.grpc_url)
    texts: dict[int, list[str]] = {}

    async def task(index: int) -> None:
        for number in range(index, len(utterances), tasks):
            texts[number] = []
            for call in calls(utterances[number], FIRST_ID + index, first):
                response = await client.infer(**call)
                texts[number].append(b" ".join(response.as_numpy("TRANSCRIPTS")).decode("utf-8"))

    try:
        await asyncio.gather(*(task(index) for index in range(tasks)))
    finally:
        await client.close()
    return texts


@pytest.mark.parametrize("first", [CONTEXT_7, NO_CONTEXT])
def test_the_client_of_many_tasks_streams(server: RunningServer, first: int) -> None:
    utterances = [clip(name) for name in CLIPS] * 4
    found = asyncio.run(client_of_tasks(server, utterances, tasks=5, first=first))
    for number, utterance in enumerate(utterances):
        # Every response carries the text so far; this client keeps the last.
        assert found[number] == plain_texts(server, utterance, first)
        assert found[number][-1] == references()[CLIPS[number % len(CLIPS)]]


def test_the_client_of_many_processes_streams(server: RunningServer) -> None:
    def process(index: int) -> tuple[str, str]:
        name = CLIPS[index % len(CLIPS)]
        with Wire(server) as wire:
            text = ""
            for call in calls(clip(name), FIRST_ID + index, CONTEXT_7):
                text = wire.client.infer(**call).as_numpy("TRANSCRIPTS")[0].decode()
        return name, text

    for name, text in together(process, range(6)):
        assert text == references()[name]


def test_an_id_is_free_straight_after_its_end(server: RunningServer) -> None:
    """Of one chunk, with START and END in the same request, and of several, in turn."""
    short = clip("digits.flac")[8000 : 8000 + CONTEXT_7]
    with Wire(server) as wire:
        expected = Stream(wire).play([short])[-1]
        assert expected
        for name in CLIPS:
            for samples, text in ((short, expected), (clip(name), references()[name])):
                answers = [wire.client.infer(**call) for call in calls(samples, FIRST_ID, CONTEXT_7)]
                assert text_of(answers[-1]) == text


def test_what_pads_a_chunk_is_never_heard(server: RunningServer) -> None:
    """Zeros as the clients send them, and noise that would be heard."""
    samples = clip("number.flac")[: CONTEXT_7 + CHUNK // 2]
    expected = plain_texts(server, samples, CONTEXT_7)
    for filling in (np.zeros(CHUNK, dtype=np.float32), noise(CHUNK / RATE, -10)):
        texts = []
        with Wire(server) as wire:
            for call in calls(samples, FIRST_ID, CONTEXT_7):
                padded, lengths = rows_of([NOTHING], call["inputs"][0].shape()[1])
                first = call["sequence_start"]
                piece = samples[:CONTEXT_7] if first else samples[CONTEXT_7:]
                padded[0, : len(piece)], lengths[0, 0] = piece, len(piece)
                padded[0, len(piece) :] = filling[: padded.shape[1] - len(piece)]
                texts.append(text_of(wire.client.infer(**{**call, "inputs": tensors(padded, lengths)})))
        assert texts == expected


def test_whole_clips_padded_to_tens_of_seconds_alone_and_in_a_batch(server: RunningServer) -> None:
    clips = [clip(name) for name in CLIPS]
    expected = [references()[name] for name in CLIPS]
    width = (max(map(len, clips)) // (10 * RATE) + 1) * 10 * RATE
    with Wire(server) as wire:
        batches = [[samples] for samples in clips]
        batches.append(clips)
        for batch in batches:
            begin = 0 if len(batch) > 1 else next(index for index, one in enumerate(clips) if one is batch[0])
            response = wire.client.infer(
                WHOLE,
                tensors(*rows_of(batch, width)),
                request_id=str(FIRST_ID + begin),
                outputs=[triton_grpc.InferRequestedOutput("TRANSCRIPTS")],
            )
            texts = response.as_numpy("TRANSCRIPTS")
            assert texts.shape == (len(batch),)
            assert [text.decode("utf-8") for text in texts] == expected[begin : begin + len(batch)]


def test_whole_clips_as_they_are(server: RunningServer) -> None:
    def one(name: str) -> tuple[str, str, str]:
        samples = clip(name)
        with Wire(server) as wire:
            response = wire.client.infer(WHOLE, tensors(*rows_of([samples], len(samples))), request_id=name)
            # No output named: all that the model has, which is this one.
            assert [output.name for output in response.get_response().outputs] == ["TRANSCRIPTS"]
            return response.as_numpy("TRANSCRIPTS")[0].decode(), wire.transcribe(samples), references()[name]

    for found, plain, reference in together(one, CLIPS):
        assert found == plain == reference


def test_the_statistics_hold_what_the_clients_read(server: RunningServer) -> None:
    with Wire(server) as wire:
        for call in calls(clip("command.flac"), FIRST_ID, CONTEXT_7):
            wire.client.infer(**call)
        samples = clip("command.flac")
        wire.client.infer(WHOLE, tensors(*rows_of([samples, samples], 10 * RATE)))
        wire.transcribe(samples)
        refusal(lambda: wire.infer(LIVE, inputs_of(samples, len(samples)), sequence_id=new_id()))
        document = wire.client.get_inference_statistics("", as_json=True)
    used = {stats["name"]: stats for stats in document["model_stats"] if "last_inference" in stats}
    assert {LIVE, WHOLE, STREAMING, OFFLINE} <= used.keys()
    for stats in used.values():
        # A field that is zero would not be in the JSON at all.
        times = stats["inference_stats"]
        for name in ("queue", "compute_infer", "compute_input", "compute_output"):
            assert int(times[name]["ns"]) > 0
        assert int(stats["inference_count"]) >= int(stats["execution_count"]) > 0
        for batch in stats["batch_stats"]:
            assert int(batch["batch_size"]) > 0
            parts = [batch[name] for name in ("compute_input", "compute_infer", "compute_output")]
            assert len({int(part["count"]) for part in parts}) == 1
            assert all(int(part["ns"]) > 0 for part in parts)
    assert "2" in {batch["batch_size"] for batch in used[WHOLE]["batch_stats"]}
    # For an ensemble this is from the request to the text, the recognition included.
    success = used[LIVE]["inference_stats"]["success"]
    assert int(success["ns"]) / int(success["count"]) > 1e6


def test_configuration_and_metadata_are_those_of_the_contract(server: RunningServer) -> None:
    with Wire(server) as wire:
        for name, answering in COMPAT_NAMES.items():
            config = wire.client.get_model_config(name, as_json=True)["config"]
            shapes = {one["name"]: (one["data_type"], one["dims"]) for one in (*config["input"], *config["output"])}
            assert shapes == {
                "WAV": ("TYPE_FP32", ["-1"]),
                "WAV_LENS": ("TYPE_INT32", ["1"]),
                "TRANSCRIPTS": ("TYPE_STRING", ["1"]),
            }
            assert [step["model_name"] for step in config["ensemble_scheduling"]["step"]] == [answering]
            own = wire.client.get_model_config(answering, as_json=True)["config"]
            assert config["max_batch_size"] == own["max_batch_size"]
            # Decoupled models cannot be called as these clients call.
            assert not config["model_transaction_policy"].get("decoupled")
            metadata = wire.client.get_model_metadata(name, as_json=True)
            assert [output["name"] for output in metadata["outputs"]] == ["TRANSCRIPTS"]
            assert wire.client.is_model_ready(name)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_errors_and_options_reach_the_model_behind_the_name(server: RunningServer, protocol: str) -> None:
    samples = clip("digits.flac")
    given = inputs_of(samples, len(samples))
    with Wire(server, protocol) as wire:
        error = refusal(lambda: wire.infer(LIVE, given, sequence_id=new_id()))
        assert "must specify the START flag" in error.message()
        whole = {"sequence_id": new_id(), "sequence_start": True, "sequence_end": True}
        error = refusal(lambda: wire.infer(LIVE, inputs_of(samples, len(samples) + 1), **whole))
        assert (status_of(error), code_of(error)) == ("INVALID_ARGUMENT", "INVALID_INPUT")
        for request in ({"model": LIVE, **whole}, {"model": WHOLE}):
            error = refusal(partial(wire.infer, inputs=given, parameters={"nonsense": 1}, **request))
            assert (status_of(error), code_of(error)) == ("INVALID_ARGUMENT", "INVALID_OPTION")
            rescored = wire.infer(inputs=given, parameters={"decode_method": "attention_rescoring"}, **request)
            assert text_of(rescored) == references()["digits.flac"]


def test_a_load_generator_that_waits_for_nothing_is_answered_in_order(server: RunningServer) -> None:
    """As perf_analyzer sends: chunks of several sequences in turn over one gRPC stream."""
    pieces = {new_id(): (name, cut(clip(name), CHUNK)) for name in CLIPS * 2}
    sent: list[int] = []
    with Pipeline(server, LIVE) as pipeline:
        for number in range(max(len(parts) for _, parts in pieces.values())):
            for sequence_id, (_, parts) in pieces.items():
                if number < len(parts):
                    given = inputs_of(parts[number], len(parts[number]))
                    start, end = number == 0, number == len(parts) - 1
                    pipeline.send(sequence_id, given, start=start, end=end)
                    sent.append(sequence_id)
        answers = pipeline.answers()
    texts: dict[int, list[str]] = {}
    for sequence_id, answer in zip(sent, answers, strict=True):
        texts.setdefault(sequence_id, []).append(text_of(answer))
    for sequence_id, (name, _) in pieces.items():
        assert texts[sequence_id][-1] == references()[name]
        assert texts[sequence_id] == sorted(texts[sequence_id], key=len)


def test_one_stream_under_both_names(server: RunningServer) -> None:
    """They are one model: what began under one name goes on under the other."""
    samples, sequence_id = clip("digits.flac"), new_id()
    half = len(samples) // 2
    with Wire(server) as wire:
        wire.infer(LIVE, inputs_of(samples[:half], half), sequence_id=sequence_id, sequence_start=True)
        end = wire.infer(STREAMING, inputs_of(samples[half:]), sequence_id=sequence_id, sequence_end=True)
    assert text_of(end) == references()["digits.flac"]
