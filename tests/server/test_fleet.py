"""`oasr transcribe --servers`: inputs shared out, servers that are lost, runs that are killed."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oasr_backend.serve import RunningServer
from tests.server.support import CLIPS, OFFLINE, TIMEOUT_S, clip_path, oasr, references, settled_counter

MANY = 30


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    rows = []
    for number in range(MANY):
        name = CLIPS[number % len(CLIPS)]
        copy = tmp_path / f"{number:03}.flac"
        copy.write_bytes(clip_path(name).read_bytes())
        rows.append(json.dumps({"audio_filepath": copy.name, "text": references()[name]}))
    path = tmp_path / "manifest.jsonl"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def servers(server: RunningServer) -> str:
    """One server under two addresses, and an address where nobody is."""
    port = server.grpc_url.rpartition(":")[2]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nobody = probe.getsockname()[1]
    return f"127.0.0.1:{port},localhost:{port},127.0.0.1:{nobody}"


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def assert_all_there(output: Path) -> None:
    rows = lines(output)
    assert [row["file"] for row in rows] == [f"{number:03}.flac" for number in range(MANY)]
    assert [row["text"] for row in rows] == [references()[CLIPS[number % len(CLIPS)]] for number in range(MANY)]


def test_texts_come_in_order_though_a_server_is_missing(servers: str, manifest: Path) -> None:
    done = oasr("transcribe", "--servers", servers, str(manifest))
    assert done.returncode == 0, done.stderr
    texts = [line.partition(": ")[2] for line in done.stdout.splitlines()]
    assert texts == [references()[CLIPS[number % len(CLIPS)]] for number in range(MANY)]


def test_a_run_that_is_killed_goes_on_and_does_nothing_twice(
    server: RunningServer, servers: str, manifest: Path, tmp_path: Path
) -> None:
    output, partial = tmp_path / "out.jsonl", tmp_path / "out.jsonl.partial"
    command = ["transcribe", "--servers", servers, "--concurrency", "1", "--json", "--output", str(output)]
    before = settled_counter(server, "clip_requests_finished", OFFLINE)
    run = subprocess.Popen(
        [sys.executable, "-m", "oasr_client.main", *command, str(manifest)], stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + TIMEOUT_S
    while not partial.exists() or partial.read_bytes().count(b"\n") < 4:
        assert run.poll() is None, "ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(run.pid, signal.SIGKILL)
    run.wait(60)
    assert not output.exists()
    kept = lines(partial)[1:] if partial.read_bytes().endswith(b"\n") else []

    again = oasr(*command, str(manifest))
    assert again.returncode == 0, again.stderr
    assert "were finished before" in again.stderr
    assert_all_there(output)
    assert not partial.exists()
    finished = {row["file"]: row for row in lines(output)}
    assert all(finished[row["line"]["file"]] == row["line"] for row in kept)
    # What was under way when the run was killed, on two servers, is all that may be done again.
    assert settled_counter(server, "clip_requests_finished", OFFLINE) - before <= MANY + 2

    refused = oasr(*command, str(manifest))
    assert refused.returncode == 2
    assert "is there already" in refused.stderr


def test_what_no_server_can_do_is_left_for_the_next_run(servers: str, manifest: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    (tmp_path / "000.flac").write_bytes(b"no audio")
    (tmp_path / "001.flac").unlink()
    done = oasr("transcribe", "--servers", servers, "--json", "--output", str(output), str(manifest))
    assert done.returncode == 1
    rows = lines(output)
    assert len(rows) == MANY
    assert all("error" in row for row in rows[:2])
    assert all("text" in row for row in rows[2:])


def test_several_servers_and_one_server_exclude_each_other(servers: str, manifest: Path) -> None:
    done = oasr("transcribe", "--servers", servers, "--server", servers.split(",")[0], str(manifest))
    assert done.returncode == 2
    assert "exclude each other" in done.stderr
    done = oasr("transcribe", "--servers", "127.0.0.1:1,127.0.0.1:1", str(manifest))
    assert done.returncode == 2
    assert "different servers" in done.stderr
