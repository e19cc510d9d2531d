import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

import oasr_client
from oasr_client.errors import AudioError
from oasr_client.main import main


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    path = tmp_path / "clip.wav"
    soundfile.write(path, np.zeros(16_000, dtype=np.int16), 16_000)
    return path


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("command", ["stream", "transcribe", "canary"])
def test_without_a_server_it_is_one_line_and_status_1(
    command: str, protocol: str, refusing_port: int, clip: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [] if command == "canary" else [str(clip)]
    status = main([command, "--server", f"127.0.0.1:{refusing_port}", "--protocol", protocol, *files])
    assert status == 1
    line = one_line(capsys)
    assert line.startswith("oasr: ")
    assert f"cannot reach the server at 127.0.0.1:{refusing_port} (connection refused): start it with" in line


@pytest.mark.parametrize("command", ["stream", "transcribe"])
def test_with_json_a_failure_is_an_object(
    command: str, refusing_port: int, clip: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--json", "--server", f"127.0.0.1:{refusing_port}", str(clip), str(clip)]) == 1
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [document["file"] for document in documents] == [str(clip)] * 2
    assert all(document["error"]["code"] == "UNAVAILABLE" for document in documents)


@pytest.mark.parametrize("command", ["stream", "transcribe"])
def test_a_missing_file_is_named_once(command: str, refusing_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "nope.wav", "--server", f"127.0.0.1:{refusing_port}"]) == 1
    assert one_line(capsys) == "oasr: no such file: nope.wav\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nope"],
        ["transcribe"],
        ["transcribe", "a.wav", "--format", "doc"],
        ["stream", "a.wav", "--server", "nowhere"],
        ["stream", "a.wav", "--chunk-ms", "0"],
        ["stream", "a.wav", "--chunk-ms", "nan"],
        ["stream", "a.wav", "--concurrency", "0"],
        ["stream", "a.wav", "--option", "n_best"],
        ["transcribe", "a.wav", "--protocol", "ftp"],
        ["canary", "--models", "nope"],
    ],
)
def test_a_wrong_command_line_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert "usage: oasr" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("stream",), "give either audio to stream or --mic"),
        (("stream", "a.wav", "--mic"), "give either audio to stream or --mic"),
        (("stream", "a.wav", "--device", "1"), "--device is set without --mic"),
        (("transcribe", "nowhere/*.wav"), "no file matches"),
        (("transcribe", "a.wav", "b.wav", "--format", "srt"), "give --output-dir"),
        (("transcribe", "x/a.wav", "y/a.wav", "--output-dir", "out"), "would both be written to a.txt"),
        (("transcribe", "a.wav", "--output", "x", "--output-dir", "y"), "exclude each other"),
        (("transcribe", "a.wav", "--n-best", "2", "--option", "n_best=3"), "option n_best is given twice"),
        (("transcribe", "a.wav", "--output", "/proc/nowhere/x"), "cannot write"),
    ],
)
def test_what_cannot_be_meant_is_status_2_and_one_line(
    arguments: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert reason in one_line(capsys)


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for argument, expected in (("--version", f"oasr {oasr_client.__version__}\n"), ("--help", "start the server")):
        with pytest.raises(SystemExit) as exit_:
            main([argument])
        assert exit_.value.code == 0
        assert expected in capsys.readouterr().out


@pytest.mark.parametrize("command", ["serve", "demo"])
def test_without_the_server_part_the_extra_is_named(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = importlib.import_module

    def without_backend(name: str, package: str | None = None):
        if name.startswith("oasr_backend"):
            raise ModuleNotFoundError("No module named 'pytriton'", name="pytriton")
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without_backend)
    assert main([command]) == 1
    assert one_line(capsys).endswith('pip install "oasr-triton[server]"\n')


@pytest.mark.parametrize(
    ("raised", "status", "message"),
    [(KeyboardInterrupt(), 130, "oasr: interrupted\n"), (AudioError("no"), 1, "oasr: no\n")],
)
def test_what_ends_a_command_becomes_its_status(
    raised: BaseException,
    status: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(_: object) -> int:
        raise raised

    monkeypatch.setattr("oasr_client.main._leave_if_threads_wait", lambda: None)
    monkeypatch.setattr("oasr_client.commands.canary.run", run)
    assert main(["canary"]) == status
    assert one_line(capsys) == message


def test_importing_the_client_loads_neither_torch_nor_tritonclient() -> None:
    program = (
        "import sys, oasr_client, oasr_client.canary, oasr_client.main\n"
        "print([name for name in ('torch', 'tritonclient', 'gevent', 'oasr_backend') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"
