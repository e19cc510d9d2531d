"""Changing the model and the server while clients stream: versions side by side, reload, restart."""

import json
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as triton_grpc
from tritonclient.utils import InferenceServerException

from oasr_backend.serve import Access, RunningServer, running_server
from oasr_backend.server.process import group_members
from oasr_backend.utils.paths import demo_checkpoint_dir
from oasr_client import OfflineClient, Resume, StreamingClient
from oasr_client.credentials import GRPC_HEADER
from oasr_client.errors import ModelNotFound
from tests.server.support import (
    CHUNK,
    DECODE,
    OFFLINE,
    PROTOCOLS,
    STREAMING,
    TIMEOUT_S,
    TRANSCRIBE,
    Wire,
    all_clips,
    clip,
    clip_path,
    cut,
    eventually,
    inputs_of,
    metrics,
    new_id,
    oasr,
    references,
    settled,
    text_of,
)

pytestmark = pytest.mark.usefixtures("tritonserver")

ADMIN_TOKEN = "the-token-of-who-loads-models"
ADMIN = {GRPC_HEADER: f"Bearer {ADMIN_TOKEN}"}
NEW = 2
OLD = 1
CLIENTS = 4
PIECES = cut(all_clips(), CHUNK)
TEXT = " ".join(references().values())


def whispering(directory: Path) -> Path:
    """A checkpoint that writes what the demo hears in small letters, so that a text tells which of the two it is of."""
    shutil.copytree(demo_checkpoint_dir(), directory)
    (directory / "bpe.model").unlink()
    units = directory / "units.txt"
    lines = [line if line.startswith("<") else line.lower() for line in units.read_text(encoding="utf-8").splitlines()]
    units.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return directory


@dataclass
class Speaker:
    """Streams all clips again and again, and resumes what is lost."""

    protocol: str
    finals: list[str] = field(default_factory=list)
    resumes: int = 0

    def run(self, url: str, is_busy: threading.Barrier, should_go: threading.Event) -> None:
        resume = Resume(resume_seconds=2 * TIMEOUT_S)
        with StreamingClient(url, self.protocol, 2 * TIMEOUT_S) as client:
            while not should_go.is_set():
                with client.stream(resume=resume) as stream:
                    for number, piece in enumerate(PIECES):
                        stream.send(piece)
                        if number == 3 and not self.finals:
                            is_busy.wait(TIMEOUT_S)
                        should_go.wait(0.05)
                    self.finals.append(stream.finish().text)
                    self.resumes += stream.resumes


class Crowd:
    """Clients in the middle of a stream, over both protocols."""

    def __init__(self, server: RunningServer) -> None:
        urls = {"grpc": server.grpc_url, "http": server.http_url}
        self.speakers = [Speaker(PROTOCOLS[number % 2]) for number in range(CLIENTS)]
        is_busy, self._should_go = threading.Barrier(CLIENTS + 1), threading.Event()
        self._pool = ThreadPoolExecutor(CLIENTS)
        self._runs = [self._pool.submit(one.run, urls[one.protocol], is_busy, self._should_go) for one in self.speakers]
        is_busy.wait(TIMEOUT_S)

    def have_finished(self, streams: int) -> bool:
        """Whether each has got so many more final texts than when this object was last asked to count."""
        return all(len(one.finals) >= begin + streams for one, begin in zip(self.speakers, self._counts))

    def count(self) -> None:
        self._counts = [len(one.finals) for one in self.speakers]

    def finish(self) -> list[Speaker]:
        """Each client finishes the stream that it is at and goes; raises what one of them has met."""
        self._should_go.set()
        for run in self._runs:
            run.result(4 * TIMEOUT_S)
        self._pool.shutdown()
        return self.speakers


def set_link(link: Path, target: Path) -> None:
    """As a deployment does: the name never stands for nothing."""
    new = link.with_name("new")
    new.symlink_to(target)
    new.replace(link)


@dataclass(frozen=True)
class Rolling:
    """A server of two versions; the checkpoint of the new one is a link that is set by the tests."""

    server: RunningServer
    link: Path
    whisper: Path

    def load(self) -> None:
        """Loads the streaming model again, as an operator does. Raises InferenceServerException."""
        client = triton_grpc.InferenceServerClient(self.server.grpc_url)
        try:
            client.load_model(STREAMING, headers=ADMIN, client_timeout=2 * TIMEOUT_S)
        finally:
            client.close()


@pytest.fixture(scope="module")
def rolling(tritonserver: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rolling]:
    directory = tmp_path_factory.mktemp("rolling")
    link, whisper = directory / "current", whispering(directory / "whisper")
    link.symlink_to(whisper)
    with running_server(
        models=(STREAMING,),
        versions={OLD: demo_checkpoint_dir(), NEW: link},
        access=Access(admin_token=ADMIN_TOKEN),
        environment={"OASR_DTYPE": "float32"},
        max_sequences=16,
        exit_timeout_s=3,
        ready_timeout_s=240,
    ) as server:
        yield Rolling(server, link, whisper)


def said(server: RunningServer, protocol: str, version: str) -> Any:
    flags = {"sequence_id": new_id(), "sequence_start": True, "sequence_end": True}
    with Wire(server, protocol) as wire:
        inputs = inputs_of(clip("digits.flac"))
        return wire.infer(STREAMING, inputs, ("TRANSCRIPTS", "RESULT"), model_version=version, **flags)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_clients_choose_the_version_and_get_the_highest_without_a_word(rolling: Rolling, protocol: str) -> None:
    text = references()["digits.flac"]
    for version, expected in (("1", text), ("2", text.lower()), ("", text.lower())):
        answer = said(rolling.server, protocol, version)
        assert text_of(answer) == expected
        document = json.loads(answer.as_numpy("RESULT")[0])
        assert (document["text"], document["is_final"]) == (expected, True)
    with pytest.raises(InferenceServerException, match=r"version 3|unknown model"):
        said(rolling.server, protocol, "3")
    url = rolling.server.grpc_url if protocol == "grpc" else rolling.server.http_url
    for chosen in ({"model": f"{STREAMING}:{OLD}"}, {"model_version": OLD}):
        with StreamingClient(url, protocol, **chosen) as client, client.stream() as stream:
            assert client.is_ready()
            stream.send(clip("digits.flac"))
            assert stream.finish().text == text


def test_commands_choose_the_version(rolling: Rolling) -> None:
    address = ("--server", rolling.server.grpc_url)
    path = str(clip_path("digits.flac"))
    text = references()["digits.flac"]
    for version, expected in (("1", text), ("2", text.lower())):
        done = oasr("stream", *address, "--json", "--model-version", version, path)
        assert json.loads(done.stdout)["text"] == expected
    for command in (("stream", path), ("bench", "--clips", path, "--seconds", "1", "--max", "1")):
        done = oasr(*command, *address, "--model-version", "3")
        assert done.returncode == 1
        assert "version 3" in done.stderr


@pytest.fixture(scope="module")
def two_offline(tritonserver: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of two versions of the model for whole clips, and of what decodes files."""
    checkpoints = {OLD: demo_checkpoint_dir(), NEW: whispering(tmp_path_factory.mktemp("offline") / "whisper")}
    with running_server(
        models=(OFFLINE, DECODE, TRANSCRIBE),
        versions=checkpoints,
        environment={"OASR_DTYPE": "float32"},
        exit_timeout_s=3,
        ready_timeout_s=240,
    ) as server:
        yield server


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_files_and_samples_are_heard_by_the_version_that_is_chosen(two_offline: RunningServer, protocol: str) -> None:
    url = two_offline.grpc_url if protocol == "grpc" else two_offline.http_url
    # Cut off, so that there is something to be told of the file.
    data = clip_path("digits.flac").read_bytes()[:-8000]
    with OfflineClient(url, protocol) as client:
        whole = client.transcribe_file(data, {"word_timestamps": True}, want_result=True)
        assert whole.result is not None
        assert whole.result["warnings"]
        # As of an ensemble's own version, which calls the highest all the same.
        assert whole.text == whole.text.lower() != ""
    for version, spelt in ((OLD, str.upper), (NEW, str.lower)):
        with OfflineClient(url, protocol, model_version=version) as client:
            told = client.transcribe_file(data, {"word_timestamps": True}, want_result=True)
            assert told.text == spelt(whole.text)
            assert told.result is not None
            assert told.result["warnings"] == whole.result["warnings"]
            assert told.result["audio_seconds"] == whole.result["audio_seconds"]
            heard = client.transcribe_samples(clip("digits.flac"))
            assert heard.text == spelt(references()["digits.flac"])
    with OfflineClient(url, protocol, model_version=3) as client, pytest.raises(ModelNotFound, match="version 3"):
        client.transcribe_file(data)


def test_the_command_for_files_chooses_the_version(two_offline: RunningServer) -> None:
    text = references()["digits.flac"]
    for chosen, expected in ((("--model-version", "1"), text), (("--model-version", "2"), text.lower())):
        done = oasr("transcribe", "--server", two_offline.grpc_url, *chosen, str(clip_path("digits.flac")))
        assert done.stdout.endswith(f": {expected}\n"), done.stderr


def test_each_version_has_series_of_its_own(rolling: Rolling) -> None:
    said(rolling.server, "grpc", "1")
    name = "oasr_sequences_finished_total"
    old, new = f'{name}{{model="{STREAMING}"}}', f'{name}{{model="{STREAMING}",version="{NEW}"}}'
    before = settled(rolling.server)
    said(rolling.server, "grpc", "2")
    assert eventually(lambda: metrics(rolling.server)[new] > before[new])
    said(rolling.server, "grpc", "1")
    assert eventually(lambda: metrics(rolling.server)[old] > before[old])


def test_a_checkpoint_that_cannot_be_loaded_leaves_the_old_one_at_work(rolling: Rolling, tmp_path: Path) -> None:
    set_link(rolling.link, tmp_path)
    with pytest.raises(InferenceServerException, match=r"no checkpoint of a known format"):
        rolling.load()
    set_link(rolling.link, rolling.whisper)
    text = references()["digits.flac"]
    for version, expected in (("1", text), ("2", text.lower())):
        assert text_of(said(rolling.server, "grpc", version)) == expected


def test_a_model_is_reloaded_under_load_and_no_word_is_lost(rolling: Rolling) -> None:
    """Streams that are open go on in the new checkpoint, from their beginning: without endpoints nothing was final."""
    old = set(group_members(rolling.server.pid)) - {rolling.server.pid}
    crowd = Crowd(rolling.server)
    set_link(rolling.link, demo_checkpoint_dir())
    rolling.load()
    crowd.count()
    # The second of them was begun after the reload.
    assert eventually(lambda: crowd.have_finished(2), TIMEOUT_S)
    speakers = crowd.finish()
    for one in speakers:
        assert set(one.finals) <= {TEXT, TEXT.lower()}
        assert one.finals[-1] == TEXT
        # None for who was between two streams when the model was replaced.
        assert one.resumes <= 1
    assert any(one.resumes for one in speakers)
    # The processes of the checkpoint that was replaced go once its sequences are gone.
    assert eventually(lambda: not old & set(group_members(rolling.server.pid)))
    assert len(group_members(rolling.server.pid)) == 3


def test_a_server_is_restarted_under_load_and_no_word_is_lost(rolling: Rolling) -> None:
    """The last test of this server. Its streams get the exit timeout; who is not done then resumes at the next one."""
    before = rolling.server
    ports = {name: int(url.rpartition(":")[2]) for name, url in (("grpc", before.grpc_url), ("http", before.http_url))}
    crowd = Crowd(before)
    before.stop()
    with running_server(
        models=(STREAMING,),
        environment={"OASR_DTYPE": "float32"},
        max_sequences=16,
        grpc_port=ports["grpc"],
        http_port=ports["http"],
        exit_timeout_s=3,
        ready_timeout_s=240,
        # In one process all channels to a port share one connection, which those of the crowd keep waiting.
        self_test=False,
    ):
        crowd.count()
        assert eventually(lambda: crowd.have_finished(1), TIMEOUT_S)
        speakers = crowd.finish()
    for one in speakers:
        assert one.finals
        assert set(one.finals) == {TEXT}
    # Who was done within the exit timeout has begun its next stream at the new server.
    assert any(one.resumes for one in speakers)
