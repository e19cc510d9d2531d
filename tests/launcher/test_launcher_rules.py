"""The rules of the launcher that need no server."""

import argparse
import json
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oasr_backend
import oasr_client
from oasr_backend.serve import LaunchError, ServeOptions, add_arguments, divide_threads, example, options_from
from oasr_backend.server import environment as environment_module
from oasr_backend.server.compat import COMPAT_NAMES, compat_models
from oasr_backend.server.environment import engine_environment, parse_setting, server_environment
from oasr_backend.server.install import ServerInstall, find_libpython, find_server, inspect_server
from oasr_backend.server.interpreter import backend_utils, following_paths, leading_paths
from oasr_backend.server.log import LogFollower, failure_reason, tail
from oasr_backend.server.messages import show_messages, show_server_line
from oasr_backend.server.options import check_checkpoint, find_models
from oasr_backend.server.ports import resolve_host, settle_ports, url
from oasr_backend.server.workspace import create_workspace
from oasr_backend.utils.cores import available_cores, cpu_quota, threads_for

BOTH = ("oasr_offline", "oasr_streaming")
RECORD = "{level}1130 05:34:05.627104 3855 model_lifecycle.cc:642] {text}"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    for name in ("train.yaml", "final.pt", "units.txt"):
        (tmp_path / name).touch()
    return tmp_path


@given(st.integers(1, 512))
def test_threads_are_divided_without_loss_and_streaming_gets_the_larger_part(cores: int) -> None:
    streaming, offline = divide_threads(cores)
    if cores <= 2:
        assert streaming == offline == cores
    else:
        assert streaming + offline == cores
        assert streaming >= offline >= 1
        assert streaming >= 0.6 * cores or offline == 1


def test_threads_as_computed_by_hand() -> None:
    assert [divide_threads(cores) for cores in (1, 2, 3, 4, 5, 8, 16)] == [
        (1, 1), (2, 2), (2, 1), (3, 1), (3, 2), (5, 3), (10, 6)
    ]  # fmt: skip
    assert threads_for(["oasr_streaming"], 8) == (8, 8)
    assert threads_for(BOTH, 8) == (5, 3)


@pytest.mark.parametrize(
    ("membership", "files", "cores"),
    [
        ("0::/\n", {"cpu.max": "max 100000"}, None),
        ("0::/\n", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/a/b\n", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "400000 100000"}, 2.0),
        ("0::/outside\n", {"cpu.max": "300000 100000"}, 3.0),
        ("3:cpu,cpuacct:/x\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("3:cpu,cpuacct:/x\n", {"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5),
        ("", {}, None),
    ],
)
def test_the_cpu_quota_of_both_control_group_versions(
    tmp_path: Path, membership: str, files: dict[str, str], cores: float | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "membership").write_text(membership)
    assert cpu_quota(tmp_path, tmp_path / "membership") == cores


def test_available_cores_are_those_of_the_affinity_mask_or_fewer() -> None:
    assert 1 <= available_cores() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize("missing", ["train.yaml", "final.pt", "units.txt"])
def test_a_checkpoint_that_lacks_a_file_is_refused_by_its_name(checkpoint: Path, missing: str) -> None:
    (checkpoint / missing).unlink()
    with pytest.raises(LaunchError, match=f"lacks {missing}"):
        check_checkpoint(str(checkpoint))


def test_words_txt_counts_as_unit_table(checkpoint: Path) -> None:
    (checkpoint / "units.txt").rename(checkpoint / "words.txt")
    assert check_checkpoint(str(checkpoint)) == checkpoint


def test_a_missing_checkpoint_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="nothing does not exist; name a WeNet checkpoint"):
        check_checkpoint(str(tmp_path / "nothing"))


def test_model_repositories_that_hold_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="does not exist"):
        find_models(tmp_path / "nothing", None)
    with pytest.raises(LaunchError, match="holds no model"):
        find_models(tmp_path, None)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "config.pbtxt").touch()
    assert find_models(tmp_path, None) == (tmp_path, ("one",))
    with pytest.raises(LaunchError, match="no model two; choose --models among one"):
        find_models(tmp_path, ("one", "two"))


def test_compat_names_are_those_whose_model_is_served() -> None:
    assert set(compat_models(("oasr_offline", "oasr_streaming", "audio_decode"))) == set(COMPAT_NAMES)
    (folder,) = compat_models(("oasr_offline",)).values()
    assert folder.name == "attention_rescoring" and (folder / "config.pbtxt").is_file() and (folder / "1").is_dir()
    with pytest.raises(LaunchError, match="needs oasr_streaming or oasr_offline, and neither is served"):
        compat_models(("audio_decode",))
    with pytest.raises(LaunchError, match="a model streaming_wenet of its own"):
        compat_models(("oasr_streaming", "streaming_wenet"))


def test_flags_win_over_the_environment_and_the_environment_over_defaults(checkpoint: Path) -> None:
    base = {
        "OASR_CHECKPOINT": "/nowhere",
        "OASR_OFFLINE_CHECKPOINT": "/nowhere",
        "OASR_MAX_SEQUENCES": "5",
        "OASR_STREAMING_NUM_THREADS": "9",
        "OTHER": "kept",
    }
    options = ServeOptions(checkpoint=checkpoint, environment={"OASR_STREAMING_DTYPE": "int8", "OASR_DTYPE": "float32"})
    found = engine_environment(options, BOTH, base)
    assert found["OASR_CHECKPOINT"] == str(checkpoint)
    assert "OASR_OFFLINE_CHECKPOINT" not in found
    assert found["OASR_MAX_SEQUENCES"] == "5"
    assert found["OASR_STREAMING_NUM_THREADS"] == "9"
    assert found["OASR_STREAMING_DTYPE"] == "int8"
    assert found["OASR_DTYPE"] == "float32"
    assert found["OTHER"] == "kept"

    options = ServeOptions(checkpoint=checkpoint, num_threads=8, max_sequences=64)
    found = engine_environment(options, BOTH, {**base, "OASR_NUM_THREADS": "1"})
    assert (found["OASR_STREAMING_NUM_THREADS"], found["OASR_OFFLINE_NUM_THREADS"]) == ("5", "3")
    assert "OASR_NUM_THREADS" not in found
    assert found["OASR_MAX_SEQUENCES"] == "64"

    found = engine_environment(ServeOptions(checkpoint=checkpoint), BOTH, {"OASR_NUM_THREADS": "1"})
    assert "OASR_STREAMING_NUM_THREADS" not in found


@pytest.mark.parametrize("nothing", ["none", "", " None "])
def test_what_is_said_to_be_nothing_is_not_said(checkpoint: Path, nothing: str) -> None:
    base = {"OASR_NUM_THREADS": nothing, "OASR_OFFLINE_NUM_THREADS": nothing, "OASR_CHECKPOINT_NAME": nothing}
    options = ServeOptions(checkpoint=checkpoint)
    silent, told = engine_environment(options, BOTH, {}), engine_environment(options, BOTH, base)
    assert told == {**silent, "OASR_CHECKPOINT_NAME": nothing}


def test_the_weights_of_a_model_are_looked_for_under_its_own_name(checkpoint: Path) -> None:
    (checkpoint / "final.pt").rename(checkpoint / "avg.pt")
    base = {"OASR_CHECKPOINT": str(checkpoint), "OASR_OFFLINE_CHECKPOINT": str(checkpoint)}
    with pytest.raises(LaunchError, match=r"lacks final\.pt"):
        engine_environment(ServeOptions(), BOTH, base)
    with pytest.raises(LaunchError, match=r"lacks other\.pt"):
        engine_environment(
            ServeOptions(),
            BOTH,
            {**base, "OASR_CHECKPOINT_NAME": "avg.pt", "OASR_OFFLINE_CHECKPOINT_NAME": "other.pt"},
        )
    engine_environment(ServeOptions(), BOTH, {**base, "OASR_CHECKPOINT_NAME": "avg.pt"})


def test_the_bundled_checkpoint_is_the_default_of_our_repository_only(tmp_path: Path) -> None:
    found = engine_environment(ServeOptions(model_repository=tmp_path), BOTH, {})
    assert "OASR_CHECKPOINT" not in found


def test_relative_checkpoints_become_absolute(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkpoint.parent)
    found = engine_environment(ServeOptions(), BOTH, {"OASR_CHECKPOINT": checkpoint.name})
    assert found["OASR_CHECKPOINT"] == str(checkpoint)


def test_the_search_path_of_models_starts_with_our_packages_and_pythonpath() -> None:
    found = leading_paths({"PYTHONPATH": "/mine:"})
    assert found[-1] == "/mine"
    for package in (oasr_backend, oasr_client):
        assert str(Path(package.__file__).parents[1]) in [*found, *following_paths()]


def test_the_added_lines_run_in_any_interpreter(tmp_path: Path) -> None:
    source = tmp_path / "utils.py"
    source.write_text("import sys\n")
    text = backend_utils(source, {"PYTHONPATH": str(tmp_path / "mine")})
    source.write_text(text + "print(sys.path, 'ä', open(__file__).encoding)")
    command = [sys.executable, "-I", str(source)]
    told = subprocess.run(command, env={"LC_ALL": "C"}, capture_output=True, encoding="utf-8", check=True).stdout
    assert str(tmp_path / "mine") in told
    assert told.lower().endswith("ä utf-8\n")


def test_settings_of_the_command_line() -> None:
    assert parse_setting("dtype=float32") == ("OASR_DTYPE", "float32")
    assert parse_setting("OASR_STREAMING_BEAM=a=b") == ("OASR_STREAMING_BEAM", "a=b")
    for text in ("dtype", "=x", "a b=c"):
        with pytest.raises(ValueError, match="is not NAME=VALUE"):
            parse_setting(text)


def test_the_command_line_of_serve() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert options_from(parser.parse_args([])) == ServeOptions()
    words = ["--models", "a,b", "--compat-names", "--set", "x=1", "--http-port", "0", "--num-threads", "3"]
    words += ["--no-self-test", "--server-arg=--id=x"]
    options = options_from(parser.parse_args(words))
    assert options.models == ("a", "b")
    assert options.compat_names
    assert options.environment == {"OASR_X": "1"}
    assert (options.http_port, options.self_test, options.num_threads) == (0, False, 3)
    assert options.server_arguments == ("--id=x",)
    for wrong in (["--http-port", "70000"], ["--num-threads", "0"], ["--set", "x"]):
        with pytest.raises(SystemExit):
            parser.parse_args(wrong)


def test_the_command_to_try_fits_the_models_and_the_port() -> None:
    assert example(BOTH, "127.0.0.1:8001") == "oasr stream talk.wav --realtime"
    assert example(BOTH, "127.0.0.1:9001") == "oasr stream talk.wav --realtime --server 127.0.0.1:9001"
    assert example(("oasr_offline", "oasr_transcribe"), "127.0.0.1:9001").startswith(
        "oasr transcribe talk.wav --server"
    )
    assert example(("plain",), "127.0.0.1:8001") == ""


def test_the_launcher_imports_no_torch() -> None:
    code = "import sys, oasr_backend.serve; sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": ":".join(sys.path)}).returncode
        == 0
    )


def test_libpython_is_taken_from_the_interpreter_or_left_to_the_loader(tmp_path: Path) -> None:
    assert find_libpython((3, 11), [tmp_path], lambda name: name == "libpython3.11") is None
    (tmp_path / "libpython3.11.so.1.0").touch()
    assert find_libpython((3, 11), [tmp_path / "none", tmp_path], lambda name: False) == tmp_path


def test_a_missing_libpython_is_named_as_a_package(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"install the package libpython3\.12"):
        find_libpython((3, 12), [tmp_path], lambda name: False)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """The files of the wheel as far as the launcher looks at them; returns the binary."""
    root = tmp_path / "pytriton" / "tritonserver"
    for name in (
        "bin/tritonserver",
        "backends/python/libtriton_python.so",
        "backends/python/triton_python_backend_utils.py",
        "python_backend_stubs/3.11/triton_python_backend_stub",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    (tmp_path / "nvidia_pytriton.libs").mkdir()
    binary = root / "bin" / "tritonserver"
    binary.chmod(0o755)
    return binary


def test_the_layout_of_the_wheel(wheel: Path, tmp_path: Path) -> None:
    found = inspect_server(wheel, [], (3, 11), lambda name: True)
    assert found.stub.parent.name == "3.11"
    assert found.library_dirs == (tmp_path / "nvidia_pytriton.libs",)
    with pytest.raises(LaunchError, match=r"runs on Python 3\.10 to 3\.12 and this is 3\.14"):
        inspect_server(wheel, [], (3, 14), lambda name: True)


def test_the_layout_of_the_container_image(wheel: Path) -> None:
    root = wheel.parent.parent
    (root / "python_backend_stubs" / "3.11" / "triton_python_backend_stub").unlink()
    stub = root / "backends" / "python" / "triton_python_backend_stub"
    stub.write_bytes(b"\0libpython3.12.so.1.0\0")
    assert inspect_server(wheel, [], (3, 12), lambda name: True).stub == stub
    with pytest.raises(LaunchError, match=r"runs Python 3\.12 models and this is Python 3\.10"):
        inspect_server(wheel, [], (3, 10), lambda name: True)


def test_an_incomplete_server_is_refused(wheel: Path) -> None:
    wheel.chmod(0o644)
    if os.getuid() or not os.access(wheel, os.X_OK):
        with pytest.raises(LaunchError, match="is not executable"):
            inspect_server(wheel, [], (3, 11), lambda name: True)
    wheel.chmod(0o755)
    (wheel.parent.parent / "backends" / "python" / "libtriton_python.so").unlink()
    with pytest.raises(LaunchError, match=r"lacks libtriton_python\.so"):
        inspect_server(wheel, [], (3, 11), lambda name: True)


def test_a_named_binary_that_is_not_there_and_a_missing_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="OASR_TRITONSERVER names /nowhere"):
        find_server({"OASR_TRITONSERVER": "/nowhere"})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(LaunchError, match=r'pip install "oasr-triton\[server\]"|use one of those for the server'):
        find_server({}, tmp_path / "none")


def test_ports_are_picked_free_and_distinct() -> None:
    wanted = [(flag, "127.0.0.1", 0) for flag in ("--http-port", "--grpc-port", "--metrics-port")]
    assert len(set(settle_ports(wanted))) == 3


def test_ports_that_cannot_be_had_are_named_with_their_flag() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(LaunchError, match=f"port {port} .* in use by another process; give --x another"):
            settle_ports([("--x", "127.0.0.1", port)])
    with pytest.raises(LaunchError, match="asked for twice; give --y another"):
        settle_ports([("--x", "127.0.0.1", port), ("--y", "127.0.0.2", port)])
    with pytest.raises(LaunchError, match=r"cannot listen on 192\.0\.2\.1"):
        settle_ports([("--x", "192.0.2.1", port)])
    with pytest.raises(LaunchError, match="has no IPv4 address"):
        resolve_host("no-such-host.invalid")


def test_addresses_for_clients() -> None:
    assert resolve_host("localhost").startswith("127.")
    assert url("0.0.0.0", 8001) == "127.0.0.1:8001"
    assert url("10.0.0.7", 8001) == "10.0.0.7:8001"


def test_workspaces_in_use_survive_the_next_start_and_abandoned_ones_do_not(tmp_path: Path) -> None:
    used = create_workspace(tmp_path)
    abandoned = create_workspace(tmp_path)
    left = Path("/dev/shm") / f"{abandoned.shm_prefix}test"
    left.touch()
    os.close(abandoned.lock)
    third = create_workspace(tmp_path)
    assert used.directory.is_dir()
    assert not abandoned.directory.exists()
    assert not left.exists()
    used.remove()
    third.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_failed_models_are_named_in_their_own_words() -> None:
    stack = r"\n\nAt:\n  /models/a/1/model.py(3): initialize\n"
    log = "\n".join(
        RECORD.format(level=level, text=text)
        for level, text in (
            ("E", '"CudaDriverHelper has not been initialized."'),
            ("E", f"\"failed to load 'a' version 1: Internal: ConfigError: dtype is x; use float32{stack}\""),
            ("I", "\"failed to load 'a'\""),
            ("E", "\"failed to load 'b' version 1: Internal: ModuleNotFoundError: No module named 'torch'\""),
        )
    )
    assert failure_reason(log) == (
        "model a failed to load: dtype is x; use float32; "
        "model b failed to load: ModuleNotFoundError: No module named 'torch'"
    )


def test_other_failures_are_told_by_the_last_errors_of_the_log() -> None:
    assert failure_reason("") == "its log gives no reason"
    log = "Error: Failed to initialize NVML\nerror: creating server: Internal - out of luck\n"
    assert failure_reason(log) == "error: creating server: Internal - out of luck"


def test_only_what_matters_of_the_log_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        RECORD.format(level="I", text="started\n| table |\n")
        + RECORD.format(level="W", text='"DCGM unable to start: no"\n')
        + RECORD.format(level="W", text="slow\nbecause of this\n")
        + RECORD.format(level="I", text="half a li")
    )
    follower = LogFollower(log, gpu=False)
    assert [line.split("] ")[-1] for line in follower.new_lines()] == ["slow", "because of this"]
    with open(log, "a") as file:
        file.write("ne\nTraceback (most recent call last):\n  File\n")
    assert follower.new_lines() == ["Traceback (most recent call last):", "  File"]
    assert len(LogFollower(log, gpu=True).new_lines()) == 5
    assert len(LogFollower(log, gpu=False, everything=True).new_lines()) == 8
    assert tail(log, 2) == "Traceback (most recent call last):\n  File"


def test_a_log_of_our_own_is_kept_small(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with open(log, "ab") as file:
        follower = LogFollower(log, gpu=False, everything=True, keep_below=100)
        for size in (60, 60, 10):
            file.write(b"x" * size + b"\n")
            file.flush()
            assert len(follower.new_lines()) == 1
    assert log.stat().st_size == 11


@pytest.mark.parametrize(
    ("native", "user", "expected"),
    [
        (True, {}, {"GOMP_SPINCOUNT": "10000"}),
        (False, {}, {"OMP_WAIT_POLICY": "PASSIVE"}),
        (True, {"OMP_WAIT_POLICY": "PASSIVE"}, {"OMP_WAIT_POLICY": "PASSIVE"}),
        (False, {"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
    ],
)
def test_threads_wait_as_the_processor_needs_unless_the_user_says_how(
    monkeypatch: pytest.MonkeyPatch, native: bool, user: dict[str, str], expected: dict[str, str]
) -> None:
    monkeypatch.setattr(environment_module, "has_bfloat16_units", lambda: native)
    install = ServerInstall(*(Path("/server") / name for name in ("binary", "backend", "utils", "stub")), ())
    found = server_environment(ServeOptions(), ("oasr_streaming",), install, {"PATH": "/bin", **user})
    assert {name: found[name] for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY") if name in found} == expected


def test_lines_of_our_models_are_shown_with_what_belongs_to_them(tmp_path: Path) -> None:
    log = tmp_path / "log"
    own = "2026-01-31T12:00:00.000Z oasr INFO oasr_streaming oasr_backend.x: stream opened"
    as_json = '{"time": "2026-01-31T12:00:00.000Z", "level": "INFO", "logger": "x", "message": "stream opened"}'
    log.write_text(
        RECORD.format(level="I", text="started\n") + f"{own}\n    Traceback\n" + RECORD.format(level="I", text="on\n")
    )
    with open(log, "a") as file:
        file.write(f"| table |\n{as_json}\n")
    assert LogFollower(log, gpu=False).new_lines() == [own, "    Traceback", as_json]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_launcher_speaks_as_the_log_is_written(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_messages(log_format)
    log = logging.getLogger("oasr.serve")
    log.info("ready")
    log.warning("little room")
    log.error("it ended")
    line = '{"time": "2026-01-31T12:00:00.000Z", "level": "INFO", "logger": "x", "message": "stream opened"}'
    triton = RECORD.format(level="W", text="slow").strip()
    show_server_line(line)
    show_server_line(triton)
    out, err = capsys.readouterr()
    if log_format == "text":
        assert out == "oasr serve: ready\n"
        assert err == f"oasr serve: warning: little room\noasr serve: it ended\n{line}\n{triton}\n"
        return
    told = [json.loads(row) for row in (out + err).splitlines()]
    assert [row["message"] for row in told] == ["ready", "little room", "it ended", "stream opened", triton]
    assert [row["level"] for row in told] == ["INFO", "WARNING", "ERROR", "INFO", "WARNING"]
    assert [row["logger"] for row in told] == ["oasr.serve"] * 3 + ["x", "tritonserver"]
