"""Beams, hotwords, second passes and endpoints through the real server, over both protocols."""

from itertools import pairwise

import numpy as np
import pytest

from oasr_backend.serve import RunningServer
from oasr_client import OfflineClient, StreamingClient, audio
from oasr_client.errors import InvalidRequest
from tests.server.support import RATE, clip, clip_path, eventually, references, streams_are_back, word_distance

DIGITS = clip_path("digits.flac")


def address(server: RunningServer, protocol: str) -> str:
    return server.grpc_url if protocol == "grpc" else server.http_url


def conversation(*names: str) -> np.ndarray:
    """Clips with a second and a half of faint noise behind each."""
    noise = np.random.default_rng(0).integers(-3, 4, RATE * 3 // 2).astype(np.int16)
    return np.concatenate([part for name in names for part in (clip(name), noise)])


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("method", ["ctc_prefix_beam", "attention_rescoring"])
def test_alternatives_of_clips_files_and_streams(server: RunningServer, protocol: str, method: str) -> None:
    options = {"decode_method": method, "n_best": 4}
    with OfflineClient(address(server, protocol), protocol) as client:
        answers = [
            client.transcribe_file(DIGITS, options, want_result=True),
            client.transcribe_samples(audio.read(DIGITS), options, want_result=True),
        ]
    with (
        StreamingClient(address(server, protocol), protocol) as client,
        client.stream(options=options, want_result=True) as stream,
    ):
        stream.send(audio.read(DIGITS))
        answers.append(stream.finish())
    for answer in answers:
        assert answer.text == references()["digits.flac"]
        assert answer.result is not None
        alternatives = answer.result["alternatives"]
        assert 1 < len(alternatives) <= 4
        assert alternatives[0]["text"] == answer.text
        scores = [one["score"] for one in alternatives]
        assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_hotwords_change_what_is_heard_for_their_request_alone(server: RunningServer, protocol: str) -> None:
    beam = {"decode_method": "ctc_prefix_beam"}
    pushed = {**beam, "hotwords": [{"phrase": "seventy", "score": 20}]}
    with OfflineClient(address(server, protocol), protocol) as client:
        plain = client.transcribe_file(DIGITS, beam)
        assert client.transcribe_file(DIGITS, {**beam, "hotwords": []}).text == plain.text
        biased = client.transcribe_file(DIGITS, pushed, want_result=True)
        assert "SEVENTY" in biased.text and "SEVENTY" not in plain.text
        assert biased.result is not None and "warnings" not in biased.result
        warned = client.transcribe_file(DIGITS, {**beam, "hotwords": ["日本"]}, want_result=True)
        assert warned.result is not None
        assert "日本" in warned.result["warnings"][0]
        assert client.transcribe_file(DIGITS, beam).text == plain.text


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("two_pass", [False, True])
def test_a_stream_of_several_utterances_is_answered_in_segments(
    server: RunningServer, protocol: str, two_pass: bool
) -> None:
    names = ("digits.flac", "command.flac", "digits.flac")
    options = {"endpointing": True, "vad_events": True, "word_timestamps": True, "two_pass": two_pass}
    endpoints, events, partials = [], [], []
    with (
        StreamingClient(address(server, protocol), protocol) as client,
        client.stream(options=options, want_result=True) as stream,
    ):
        for chunk in audio.chunks(conversation(*names), 480):
            answer = stream.send(chunk)
            assert answer.result is not None
            partials.append(answer.result)
            endpoints += [answer.result["endpoint"]] if "endpoint" in answer.result else []
            events += answer.result["speech_events"]
        final = stream.finish()
    assert final.result is not None
    segments = final.result["segments"]
    assert len(segments) == len(names)
    for name, segment in zip(names, segments, strict=True):
        # The small model hears a clip a little differently behind a pause; a second pass is free to as well.
        assert word_distance(segment["text"], references()[name]) <= 1
    assert final.text == " ".join(segment["text"] for segment in segments)
    assert all(segment["is_final"] for segment in segments)
    assert [segment["id"] for segment in segments] == [0, 1, 2]
    assert [endpoint["reason"] for endpoint in endpoints][:2] == ["silence", "silence"]
    assert len({endpoint["frame"] for endpoint in endpoints}) == len(endpoints)
    assert all(endpoint["time"] == pytest.approx(endpoint["frame"] * 0.04) for endpoint in endpoints)
    starts = [word["start"] for segment in segments for word in segment["words"]]
    assert starts == sorted(starts)
    length = (len(clip("digits.flac")) + len(clip("command.flac"))) / RATE + 3.0
    assert segments[2]["start"] == pytest.approx(length + segments[0]["start"], abs=0.3)
    kinds = [event["type"] for event in events]
    assert kinds[:4] == ["speech_start", "speech_end"] * 2
    # What is final stays as it is.
    for earlier, later in pairwise(partials):
        done = [segment for segment in earlier["segments"] if segment["is_final"]]
        assert later["segments"][: len(done)] == done
    assert eventually(lambda: streams_are_back(server))


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decode_method": "wfst"}, "decode_method 'wfst' is not supported"),
        ({"n_best": 3}, "n_best is 3, but this decode method gives 1"),
        ({"n_best": "many"}, "option n_best is 'many'; it must be a whole number"),
        ({"hotwords": ["a"]}, "hotwords are set, but this decode method cannot honour them"),
        ({"hotwords": "[1", "decode_method": "ctc_prefix_beam"}, "hotwords is no JSON list"),
        ({"hotword_score": -1.0}, "hotword_score is -1.0; it must be above 0"),
        ({"endpoint_silence_ms": 500}, "endpoint_silence_ms is set, but endpointing is off"),
        ({"endpointing": True, "endpoint_history": "some"}, "endpoint_history is 'some'; choose one of keep, reset"),
    ],
)
def test_options_that_cannot_be_honoured_open_no_stream(
    server: RunningServer, protocol: str, options: dict, message: str
) -> None:
    with (
        StreamingClient(address(server, protocol), protocol) as client,
        pytest.raises(InvalidRequest) as caught,
        client.stream(options=options) as stream,
    ):
        stream.send(audio.read(DIGITS))
    assert message in str(caught.value) and caught.value.code == "INVALID_OPTION"
    if any(name.startswith("endpoint") for name in options):
        return
    with (
        OfflineClient(address(server, protocol), protocol) as client,
        pytest.raises(InvalidRequest) as caught,
    ):
        client.transcribe_file(DIGITS, options)
    assert message in str(caught.value) and caught.value.code == "INVALID_OPTION"
