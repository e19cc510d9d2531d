"""The `oasr` command and the metrics of a running server, as their users see them."""

import json
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import soundfile

from oasr_backend.serve import RunningServer
from oasr_client import OfflineClient, StreamingClient, play
from tests.server.support import (
    CLIPS,
    OFFLINE,
    PROTOCOLS,
    STREAMING,
    clip,
    clip_path,
    metrics,
    oasr,
    references,
    word_distance,
)


@pytest.fixture(params=PROTOCOLS)
def address(request: pytest.FixtureRequest, server: RunningServer) -> tuple[str, ...]:
    url = server.grpc_url if request.param == "grpc" else server.http_url
    return ("--protocol", request.param, "--server", url)


def test_stream_shows_the_text_of_a_file(address: tuple[str, ...]) -> None:
    done = oasr("stream", *address, str(clip_path("digits.flac")))
    assert done.returncode == 0, done.stderr
    assert references()["digits.flac"] in done.stdout
    # Partial texts before it.
    assert "SEVEN THREE NINE\n" in done.stdout
    assert done.stderr == ""


def test_stream_takes_any_rate_and_channel_count(address: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "stereo.wav"
    loud = np.repeat(clip("number.flac"), 3)
    soundfile.write(path, np.stack([loud, loud], axis=1), 48000)
    done = oasr("stream", *address, "--json", "--chunk-ms", "200", str(path))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert word_distance(document["text"], references()["number.flac"]) <= 2
    assert document["result"]["is_final"] is True


def test_transcribe_prints_a_json_object_a_file(address: tuple[str, ...]) -> None:
    done = oasr("transcribe", *address, "--json", *(str(clip_path(name)) for name in CLIPS))
    assert done.returncode == 0, done.stderr
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    assert [Path(document["file"]).name for document in documents] == list(CLIPS)
    for document in documents:
        assert document["text"] == document["result"]["text"]
        assert word_distance(document["text"], references()[Path(document["file"]).name]) <= 2


def test_canary_passes(address: tuple[str, ...]) -> None:
    done = oasr("canary", *address)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ok ")


@pytest.mark.parametrize("command", ["stream", "transcribe"])
def test_a_wrong_file_is_one_line_and_a_failure(command: str, address: tuple[str, ...], tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no audio\n" * 100)
    for path in (text, tmp_path / "missing.wav"):
        done = oasr(command, *address, str(path))
        assert done.returncode == 1
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1
        assert path.name in done.stderr


def test_a_wrong_file_does_not_stop_the_others(address: tuple[str, ...], tmp_path: Path) -> None:
    done = oasr("transcribe", *address, str(tmp_path / "missing.wav"), str(clip_path("digits.flac")))
    assert done.returncode == 1
    assert references()["digits.flac"] in done.stdout
    assert sum("no such file" in line for line in done.stderr.splitlines()) == 1
    assert "2 files, 1 failed" in done.stderr


def test_an_unknown_option_is_one_line_and_a_failure(address: tuple[str, ...]) -> None:
    for command in ("stream", "transcribe"):
        done = oasr(command, *address, "--option", "nonsense=1", str(clip_path("digits.flac")))
        assert done.returncode == 1
        assert "nonsense" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_server_that_is_not_there_is_one_line_and_a_failure() -> None:
    for arguments in (["canary"], ["stream", str(clip_path("digits.flac"))]):
        for protocol in PROTOCOLS:
            done = oasr(arguments[0], "--protocol", protocol, "--server", "127.0.0.1:9", *arguments[1:])
            assert done.returncode == 1
            assert "cannot reach the server at 127.0.0.1:9" in done.stderr
            assert len(done.stderr.splitlines()) == 1


def test_the_client_library_streams_and_transcribes(server: RunningServer) -> None:
    for protocol, url in (("grpc", server.grpc_url), ("http", server.http_url)):
        with StreamingClient(url, protocol) as live, OfflineClient(url, protocol) as whole:
            assert live.is_ready()
            for name in CLIPS:
                playback = play(live, clip(name), chunk_ms=320, want_result=True)
                assert playback.text == references()[name]
                assert playback.result is not None and playback.result["finish_reason"] == "stop"
                assert whole.transcribe_file(clip_path(name)).text == references()[name]
                assert whole.transcribe_samples(clip(name)).text == references()[name]


def test_the_demo_runs_and_shows_the_texts(tritonserver: None) -> None:
    done = oasr("demo", timeout_s=240)
    assert done.returncode == 0, done.stdout + done.stderr
    for name, text in references().items():
        assert name in done.stdout
        # Once as spoken, once streamed, once whole.
        assert done.stdout.count(text) >= 3
    assert "the server is stopped" in done.stdout


def test_metrics_tell_of_both_engines(server: RunningServer) -> None:
    with urllib.request.urlopen(f"http://{server.metrics_url}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    kinds = {"engine_batch_size": "histogram", "engine_step_seconds": "histogram", "engine_kv_blocks_used": "gauge"}
    kinds |= {"sequences_open": "gauge", "requests_admitted_total": "counter", "engine_audio_seconds_total": "counter"}
    for name, kind in kinds.items():
        assert f"# TYPE oasr_{name} {kind}" in text
    values = metrics(server)
    for model in (STREAMING, OFFLINE):
        mode = model.removeprefix("oasr_")
        assert values[f'oasr_engine_batch_size_count{{mode="{mode}",model="{model}"}}'] >= 0
        assert values[f'oasr_engine_step_seconds_sum{{mode="{mode}",model="{model}"}}'] >= 0
    assert values[f'oasr_engine_kv_blocks_capacity{{model="{STREAMING}"}}'] > 0
