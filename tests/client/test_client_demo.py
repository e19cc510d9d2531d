import contextlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile

from oasr_client.commands import demo
from oasr_client.errors import OasrError, ServerError
from oasr_client.main import main
from oasr_client.offline import Failure, Transcription
from oasr_client.playback import Playback


@pytest.fixture
def assets(tmp_path: Path) -> Path:
    clips = tmp_path / "clips"
    clips.mkdir()
    for name in ("b.flac", "a.wav"):
        soundfile.write(clips / name, np.zeros(3_200, dtype=np.int16), 16_000)
    (clips / "clips.json").write_text(json.dumps({"a.wav": "HELLO"}))
    return tmp_path


@pytest.fixture
def backend(assets: Path, refusing_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A launcher whose server is never there; the list tells what became of it."""
    events: list[str] = []

    @contextlib.contextmanager
    def running_server(**ports: object) -> Iterator[SimpleNamespace]:
        assert ports == {"checkpoint": None, "http_port": 0, "grpc_port": 0, "metrics_port": 0}
        events.append("started")
        try:
            yield SimpleNamespace(grpc_url=f"127.0.0.1:{refusing_port}")
        finally:
            events.append("stopped")

    modules = {"utils.paths": SimpleNamespace(assets_dir=lambda: assets)}
    modules["serve"] = SimpleNamespace(running_server=running_server)
    monkeypatch.setattr("oasr_client.commands.common.backend", lambda name, command: modules[name])
    before = signal.getsignal(signal.SIGTERM)
    yield events
    signal.signal(signal.SIGTERM, before)


def test_the_clips_come_sorted_with_their_texts(assets: Path, backend: list[str]) -> None:
    clips = demo.bundled_clips()
    assert [(path.name, text) for path, text in clips.items()] == [("a.wav", "HELLO"), ("b.flac", "")]


@pytest.mark.parametrize("broken", ["clips.json", "a.wav b.flac"])
def test_missing_clips_are_told_in_words(assets: Path, backend: list[str], broken: str) -> None:
    for name in broken.split():
        (assets / "clips" / name).unlink()
    with pytest.raises(OasrError, match="demo clips"):
        demo.bundled_clips()


def test_a_demo_that_fails_says_so_and_stops_the_server(backend: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 1
    shown = capsys.readouterr()
    assert "oasr: 4 of 4 transcriptions failed; the first: a.wav: cannot reach the server" in shown.err
    assert "spoken" in shown.out
    assert backend == ["started", "stopped"]


def test_silence_where_words_were_spoken_is_a_failure() -> None:
    silent, spoken = Transcription("a", "", None, 0.1), Playback("HELLO", None, 1.0, 0.1, (0.1,))
    assert demo.problem_of(silent, "HELLO") == "nothing was recognised"
    assert demo.problem_of(silent, "") == ""
    assert demo.problem_of(spoken, "HELLO") == ""
    assert demo.problem_of(Failure("a", ServerError("no")), "") == "no"
    assert demo.problem_of(ServerError("no"), "") == "no"
