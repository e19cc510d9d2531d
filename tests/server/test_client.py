"""The client library and the commands with inputs, outputs and options, against the real server."""

import asyncio
import doctest
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import soundfile

import oasr_client.aio
import oasr_client.offline
import oasr_client.streaming
from oasr_backend.serve import RunningServer
from oasr_backend.utils.paths import assets_dir
from oasr_client import AsyncOfflineClient, AsyncStreamingClient, Failure, StreamingClient, audio, transport
from oasr_client.errors import InvalidRequest, RequestCancelled, ServerTimeout, ServerUnreachable, UnknownSequence
from oasr_client.main import main
from tests.server.support import (
    CHUNK,
    CLIPS,
    PROTOCOLS,
    RATE,
    STREAMING,
    all_clips,
    clip,
    clip_path,
    cut,
    eventually,
    references,
    settled_counter,
    streams_are_back,
)

ROOT = assets_dir().parent
DOCUMENTS = ("README.md", "docs/client.md", "docs/decoding.md")


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def url_of(server: RunningServer, protocol: str) -> str:
    return server.grpc_url if protocol == "grpc" else server.http_url


def forget(server: RunningServer, correlation_id: transport.CorrelationId) -> None:
    """Ends a sequence behind its client's back."""
    with transport.connect(server.grpc_url) as via:
        step = transport.SequenceStep(correlation_id, end=True)
        via.infer(STREAMING, {"PCM": np.zeros((1, 0), dtype=np.int16)}, ["TRANSCRIPTS"], sequence=step)


def address(server: RunningServer, protocol: str = "grpc") -> tuple[str, ...]:
    return ("--protocol", protocol, "--server", url_of(server, protocol))


@pytest.fixture
def default_server(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples name the default ports, or none; here they mean the server of the tests."""
    urls = {"127.0.0.1:8001": server.grpc_url, "127.0.0.1:8000": server.http_url}
    check = transport.check_url
    monkeypatch.setattr(transport, "check_url", lambda url: check(urls.get(url, url)))
    monkeypatch.chdir(ROOT)


@pytest.mark.usefixtures("default_server")
@pytest.mark.parametrize("module", [oasr_client.streaming, oasr_client.offline, oasr_client.aio])
def test_the_examples_of_docstrings_do_what_they_show(module: ModuleType) -> None:
    outcome = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def examples() -> list[Any]:
    """Python blocks of the documents that use our client; those for a bare tritonclient name their own address."""
    found = []
    for name in DOCUMENTS:
        text = (ROOT / name).read_text(encoding="utf-8")
        blocks = [part.split("```")[0] for part in text.split("```python\n")[1:]]
        found += [
            pytest.param(block, id=f"{name}-{number}") for number, block in enumerate(blocks) if "oasr_client" in block
        ]
    return found


@pytest.mark.usefixtures("default_server")
@pytest.mark.parametrize("block", examples())
def test_the_examples_of_documents_run(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block, "example", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out.strip()


def test_many_asynchronous_streams_and_clips(server: RunningServer, protocol: str) -> None:
    async def stream(client: AsyncStreamingClient, name: str) -> str:
        async with client.stream({"endpointing": False}, want_result=True, resume=True) as stream:
            texts = []
            for chunk in audio.chunks(clip(name), 320):
                response = await stream.send(chunk)
                assert response.result is not None and response.result["text"] == response.text
                texts.append(response.text)
            final = await stream.finish()
            assert final.is_final and final.resumes == 0 and texts[0] == ""
            return final.text

    async def run() -> None:
        url = url_of(server, protocol)
        async with AsyncStreamingClient(url, protocol) as live, AsyncOfflineClient(url, protocol) as whole:
            assert await live.is_ready()
            names = CLIPS * 4
            assert await asyncio.gather(*(stream(live, name) for name in names)) == [references()[n] for n in names]
            outcomes = [one async for one in whole.transcribe_many([*map(clip_path, CLIPS), "missing.wav"])]
            assert [getattr(one, "text", None) for one in outcomes] == [*references().values(), None]
            assert isinstance(outcomes[-1], Failure) and "no such file" in str(outcomes[-1].error)
            found = await whole.transcribe_samples(clip(CLIPS[0]), {"word_timestamps": True}, want_result=True)
            assert found.result is not None
            assert [word["word"] for word in found.result["segments"][0]["words"]] == found.text.split()

    asyncio.run(run())


def test_asynchronous_failures_are_typed(server: RunningServer, protocol: str) -> None:
    async def run() -> None:
        async with AsyncStreamingClient(url_of(server, protocol), protocol) as client:
            async with client.stream({"nonsense": 1}) as stream:
                with pytest.raises(InvalidRequest, match="nonsense") as raised:
                    await stream.send(clip(CLIPS[0])[:CHUNK])
                assert raised.value.code == "INVALID_OPTION"
            async with client.stream() as stream:
                await stream.send(clip(CLIPS[0])[:CHUNK])
                forget(server, stream.correlation_id)
                with pytest.raises(UnknownSequence):
                    await stream.send(clip(CLIPS[0])[:CHUNK])
            via = transport.connect_async(url_of(server, protocol), protocol, 0.0001)
            # The server may have taken its START all the same; leaving it ends it.
            async with AsyncStreamingClient(via=via).stream() as stream:
                with pytest.raises(ServerTimeout, match="no answer within"):
                    await stream.send(clip(CLIPS[0]))
            await via.close()
        with pytest.raises(RequestCancelled, match="closed by this program"):
            await client.stream().send(clip(CLIPS[0])[:CHUNK])
        async with AsyncOfflineClient("127.0.0.1:9", protocol) as nobody:
            with pytest.raises(ServerUnreachable, match="connection refused"):
                await nobody.transcribe_samples(clip(CLIPS[0]))

    asyncio.run(run())


def test_a_cancelled_stream_is_ended(server: RunningServer, protocol: str) -> None:
    assert eventually(lambda: streams_are_back(server))
    reaped = settled_counter(server, "sequences_reaped")

    async def run() -> None:
        async with AsyncStreamingClient(url_of(server, protocol), protocol) as client:
            is_open = asyncio.Event()

            async def talk() -> None:
                async with client.stream() as stream:
                    while True:
                        await stream.send(clip(CLIPS[0])[:1600])
                        is_open.set()

            task = asyncio.create_task(talk())
            await is_open.wait()
            # In the middle of some chunk.
            await asyncio.sleep(0.3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())
    # By its END, and not because it was silent for long.
    assert eventually(lambda: streams_are_back(server))
    assert settled_counter(server, "sequences_reaped") == reaped


def test_a_sequence_that_the_server_forgot_is_resumed(server: RunningServer, protocol: str) -> None:
    pieces = cut(np.concatenate([all_clips(), np.zeros(2 * RATE, dtype=np.float32), all_clips()]), CHUNK)
    text = " ".join([*references().values()] * 2)
    with StreamingClient(url_of(server, protocol), protocol) as client:
        for options in ({}, {"endpointing": True, "word_timestamps": True}):
            with client.stream(options, want_result=True, resume=True) as stream:
                for number, piece in enumerate(pieces):
                    stream.send(piece)
                    if number % 6 == 5:
                        forget(server, stream.correlation_id)
                final = stream.finish()
            assert final.text == text
            assert final.resumes == len(pieces) // 6
            assert final.result is not None
            words = [word for segment in final.result["segments"] for word in segment.get("words", ())]
            assert " ".join(word["word"] for word in words) == (text if options else "")
            assert all(earlier["end"] <= later["start"] for earlier, later in pairwise(words))


# commands, in this process: `test_commands.py` has them in their own


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def oasr(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    def run(*arguments: str) -> Done:
        status = main(arguments)
        return Done(status, *capsys.readouterr())

    return run


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A Kaldi folder, a NeMo manifest of the same, and a Hugging Face table; one file is missing in each."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    names = [*CLIPS, "missing.flac"]
    for name in CLIPS:
        (folder / name).write_bytes(clip_path(name).read_bytes())
    texts = {**references(), "missing.flac": "NOTHING"}
    # One word of 17 is wrong, whatever is recognised.
    texts[CLIPS[0]] = texts[CLIPS[0]].replace("SEVEN", "WRONG")
    (folder / "wav.scp").write_text("".join(f"utt-{name} {name}\n" for name in names))
    (folder / "text").write_text("".join(f"utt-{name} {texts[name].lower()}.\n" for name in names))
    rows = [{"audio_filepath": name, "text": texts[name], "duration": 1.0} for name in names]
    (folder / "nemo.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "table.csv").write_text("file_name,text\n" + "".join(f"{name},{texts[name]}\n" for name in names))
    return folder


@pytest.mark.parametrize("manifest", ["wav.scp", "nemo.jsonl", "table.csv"])
def test_manifests_are_transcribed_and_scored(
    server: RunningServer, corpus: Path, manifest: str, oasr: Callable[..., Done]
) -> None:
    summary = corpus / "out" / "summary.json"
    done = oasr("transcribe", *address(server), str(corpus / manifest), "--summary", str(summary))
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert [line.partition(": ")[2] for line in lines] == list(references().values())
    assert "no such file" in done.stderr and "4 files, 1 failed" in done.stderr
    assert "WER 5.88 %: 1 errors (1 substituted, 0 deleted, 0 inserted) in 17 words of 3 utterances" in done.stderr
    assert "case and punctuation ignored" in done.stderr
    document = json.loads(summary.read_text())
    assert (document["files"], len(document["failed"]), document["wer"]["errors"]) == (4, 1, 1)
    assert document["audio_seconds"] == pytest.approx(len(all_clips()) / RATE, abs=0.01)
    assert document["rtfx"] > 0 and document["latency_seconds"]["p99"] > 0


def test_streaming_is_scored_too(server: RunningServer, corpus: Path, oasr: Callable[..., Done]) -> None:
    arguments = ("--normalize", "none", "--json", "--concurrency", "3")
    done = oasr("stream", *address(server, "http"), str(corpus / "nemo.jsonl"), *arguments)
    assert done.returncode == 1
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    assert [document.get("text") for document in documents] == [*references().values(), None]
    assert documents[-1]["error"]["message"].startswith("no such file")
    assert all(document["resumes"] == 0 for document in documents[:-1])
    assert "compared as they are" in done.stderr and "WER 5.88 %" in done.stderr


def test_parts_of_recordings_are_transcribed(server: RunningServer, tmp_path: Path, oasr: Callable[..., Done]) -> None:
    soundfile.write(tmp_path / "all.wav", all_clips(), RATE)
    (tmp_path / "wav.scp").write_text("rec all.wav\n")
    ends = np.cumsum([len(clip(name)) for name in CLIPS]) / RATE
    begins = [0.0, *ends[:-1]]
    rows = [f"utt{number} rec {a:.4f} {b:.4f}\n" for number, (a, b) in enumerate(zip(begins, ends, strict=True))]
    (tmp_path / "segments").write_text("".join(rows))
    done = oasr("transcribe", *address(server), str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"utt{number}: {text}" for number, text in enumerate(references().values())]


def test_outputs_of_every_format(server: RunningServer, tmp_path: Path, oasr: Callable[..., Done]) -> None:
    clips = str(assets_dir() / "clips")
    for kind, first in (("srt", "1"), ("vtt", "WEBVTT"), ("json", "{"), ("text", "")):
        folder = tmp_path / kind
        done = oasr("transcribe", *address(server), clips, "--format", kind, "--output-dir", str(folder))
        assert done.returncode == 0, done.stderr
        assert done.stdout == ""
        suffix = {"text": ".txt"}.get(kind, f".{kind}")
        assert sorted(path.name for path in folder.iterdir()) == sorted(Path(name).stem + suffix for name in CLIPS)
        for name in CLIPS:
            text = (folder / (Path(name).stem + suffix)).read_text()
            assert text.startswith(first)
            assert references()[name] in text
    done = oasr("transcribe", *address(server), clips, "--output", str(tmp_path / "all.txt"))
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "all.txt").read_text().splitlines()) == len(CLIPS)


def test_subtitles_fit_what_is_said(server: RunningServer, oasr: Callable[..., Done]) -> None:
    done = oasr("transcribe", *address(server), str(clip_path("digits.flac")), "--format", "srt")
    assert done.returncode == 0, done.stderr
    number, times, text = done.stdout.splitlines()
    begin, end = (float(one.rpartition(":")[2].replace(",", ".")) for one in times.split(" --> "))
    assert (number, text) == ("1", references()["digits.flac"])
    assert 0 <= begin < end <= len(clip("digits.flac")) / RATE


@pytest.mark.parametrize("command", ["stream", "transcribe"])
def test_options_of_the_command_line_reach_the_server(
    server: RunningServer, command: str, oasr: Callable[..., Done]
) -> None:
    flags = ("--decode-method", "ctc_prefix_beam", "--n-best", "2", "--words", "--hotword", "ENTER")
    done = oasr(command, *address(server), str(clip_path("command.flac")), "--json", *flags)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["result"]
    assert len(result["alternatives"]) == 2
    assert [word["word"] for word in result["segments"][0]["words"]] == result["text"].split()
    done = oasr(command, *address(server), str(clip_path("command.flac")), "--n-best", "2")
    assert done.returncode == 1
    assert "n_best is 2" in done.stderr


def test_endpoints_of_the_command_line(server: RunningServer, tmp_path: Path, oasr: Callable[..., Done]) -> None:
    pause = np.zeros(RATE, dtype=np.float32)
    soundfile.write(tmp_path / "two.wav", np.concatenate([clip("digits.flac"), pause, clip("command.flac")]), RATE)
    flags = ("--endpointing", "--endpoint-silence-ms", "600", "--json")
    done = oasr("stream", *address(server), str(tmp_path / "two.wav"), *flags)
    assert done.returncode == 0, done.stderr
    segments = json.loads(done.stdout)["result"]["segments"]
    assert [segment["text"] for segment in segments] == [references()["digits.flac"], references()["command.flac"]]


def test_a_microphone_is_streamed_until_it_is_interrupted(
    server: RunningServer, oasr: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Microphone:
        """Hears two clips, and then the user's Ctrl-C."""

        overflows = 0

        def __init__(self, chunk_ms: float, device: str | int | None) -> None:
            assert (chunk_ms, device) == (320.0, 3)

        def chunks(self) -> Iterator[np.ndarray]:
            pause = np.zeros(2 * RATE, dtype=np.float32)
            yield from cut(np.concatenate([clip("digits.flac"), pause, clip("command.flac")]), CHUNK // 2)
            raise KeyboardInterrupt

        def __enter__(self) -> "Microphone":
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr("oasr_client.commands.stream.Microphone", Microphone)
    done = oasr("stream", *address(server), "--mic", "--device", "3", "--chunk-ms", "320", "--json")
    assert done.returncode == 0
    segments = [json.loads(line) for line in done.stdout.splitlines()]
    assert [segment["text"] for segment in segments] == [references()["digits.flac"], references()["command.flac"]]
    assert [segment.get("endpoint") for segment in segments] == ["silence", None]
    assert done.stderr == "listening; end with Ctrl-C\n"
