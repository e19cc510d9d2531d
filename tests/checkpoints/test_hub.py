"""Checkpoints on the Hub: the cache is laid out by the test, the Hub is a server on this machine."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from oasr_backend.checkpoints.hub import ALLOWED, checkpoint_dir
from oasr_backend.config import EngineConfig, resolve
from tests.golden.cases import CASES, GoldenCase

CASE = GoldenCase(CASES[0])
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_neverPrintMe"
# Only the library's own process may read its variables: it looks at them once, when it is imported.
ASK = """
import sys
from oasr_backend.checkpoints.hub import checkpoint_dir
from oasr_backend.errors import CheckpointError
try:
    print(checkpoint_dir(sys.argv[1]))
except CheckpointError as error:
    sys.exit(f"refused: {error}")
"""


def ask(text: str, home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    environment = {
        **kept,
        "HF_HOME": str(home),
        "HF_TOKEN": TOKEN,
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        **variables,
    }
    command = [sys.executable, "-c", ASK, text]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def refusal(done: subprocess.CompletedProcess[str], text: str) -> str:
    """The one sentence, without a traceback or a token in it."""
    assert done.returncode == 1, done.stdout
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith(f"refused: checkpoint {text} is no directory here, and ")
    assert TOKEN not in done.stdout + done.stderr
    return lines[0]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A cache as the library keeps it, with one revision of the tiny checkpoint under two names."""
    repository = tmp_path / "home" / "hub" / "models--tests--tiny"
    snapshot = repository / "snapshots" / COMMIT
    blobs = repository / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, name in enumerate(("train.yaml", "units.txt", "global_cmvn", "final.pt")):
        shutil.copyfile(CASE.path / name, blobs / str(number))
        (snapshot / name).symlink_to(Path("../../blobs") / str(number))
    for ref in ("main", "v1"):
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / ref).write_text(COMMIT, encoding="utf-8")
    return tmp_path / "home"


@pytest.mark.parametrize("text", ["tests/tiny", "tests/tiny@main", "tests/tiny@v1", f"tests/tiny@{COMMIT}"])
def test_a_kept_copy_is_used_without_the_hub(home: Path, text: str) -> None:
    done = ask(text, home, HF_HUB_OFFLINE="1")
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()) == home / "hub" / "models--tests--tiny" / "snapshots" / COMMIT


def test_an_engine_takes_a_hub_id(home: Path) -> None:
    program = """
from oasr_backend.engine import ASREngine, EngineConfig
settings = dict(device="cpu", dtype="float32", num_threads=1, max_batch_size=1, max_blocks_per_seq=32)
engine = ASREngine(EngineConfig(ckpt_dir="tests/tiny@v1", **settings))
print(engine.vocab_size, engine.config.ckpt_dir.name)
"""
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.split() == [str(CASE.checkpoint.model.vocab_size), COMMIT], done.stderr


@pytest.mark.parametrize("text", ["tests/other", "tests/tiny@v2"])
def test_what_is_not_kept_is_refused_offline(home: Path, text: str) -> None:
    assert "HF_HUB_OFFLINE is set" in refusal(ask(text, home, HF_HUB_OFFLINE="1"), text)


def test_a_hub_out_of_reach_is_named_unless_a_copy_is_kept(home: Path) -> None:
    nobody = "http://127.0.0.1:9"
    assert "cannot be reached" in refusal(ask("tests/other", home, HF_ENDPOINT=nobody), "tests/other")
    done = ask("tests/tiny", home, HF_ENDPOINT=nobody)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith(COMMIT)


@contextmanager
def hub(status: int, code: str) -> Iterator[str]:
    """A Hub that answers every request with an error."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"error": f"no, {TOKEN}"}).encode()
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", f"no, {TOKEN}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "code", "text", "reason"),
    [
        (404, "RepoNotFound", "tests/other", "has no such repository that you may read"),
        (401, "RepoNotFound", "tests/other", "has no such repository that you may read"),
        (404, "RevisionNotFound", "tests/other@v9", "has no revision v9"),
        (404, "RevisionNotFound", "tests/other", "has no revision main"),
        (403, "GatedRepo", "tests/other", "let nobody read it unasked"),
        (500, "", "tests/other", "cannot be reached and no whole copy is kept"),
    ],
)
def test_what_the_hub_refuses_is_said_in_one_sentence(
    tmp_path: Path, status: int, code: str, text: str, reason: str
) -> None:
    with hub(status, code) as endpoint:
        assert reason in refusal(ask(text, tmp_path, HF_ENDPOINT=endpoint), text)


def test_a_name_that_the_hub_does_not_allow_is_said_to_be_none(tmp_path: Path) -> None:
    assert "no name that the Hugging Face Hub allows" in refusal(ask("tests/a--b", tmp_path), "tests/a--b")


def test_a_directory_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert checkpoint_dir("org/name") == Path("org/name")
    assert checkpoint_dir(str(tmp_path / "org")) == tmp_path / "org"
    assert resolve(EngineConfig(ckpt_dir="org/name")).ckpt_dir == Path("org/name")


@pytest.mark.parametrize(
    "text", ["checkpoint", "./org/name", "../name", "/org/name", "org/name/", "a/b/c", "org/name@"]
)
def test_a_path_is_left_for_the_loader_to_miss(text: str) -> None:
    assert checkpoint_dir(text) == Path(text)


def test_only_what_a_checkpoint_holds_is_fetched() -> None:
    filtering = pytest.importorskip("huggingface_hub.utils")
    needed = [
        "train.yaml",
        "final.pt",
        "avg_30.pt",
        "units.txt",
        "words.txt",
        "global_cmvn",
        "train_960_unigram5000.model",
        "oasr_config.json",
        "model.safetensors",
        "tokenizer/units.txt",
        "tokenizer/bpe.model",
    ]
    others = [
        ".gitattributes",
        "README.md",
        "final.zip",
        "encoder.onnx",
        "sample.wav",
        "logs/events.tfevents",
        "run.sh",
    ]
    assert list(filtering.filter_repo_objects(needed + others, allow_patterns=list(ALLOWED))) == needed
