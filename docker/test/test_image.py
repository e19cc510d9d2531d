"""The CPU image, built and run as it is deployed: no network, read-only root, no capabilities, not root.

Outside `make test`: `make test-image` runs it with podman or docker. Read from the environment:

ENGINE        command of the container engine, default podman
BUILD_ARGS    further arguments of its `build`, such as another package index
RUN_ARGS      further arguments of its `run`
BASE          base image; `debootstrap`: a clean Debian 12 is made here and named as the Dockerfile names it
"""

import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "docker" / "Dockerfile.cpu"
ENGINE = shlex.split(os.environ.get("ENGINE", "podman"))
IMAGE = "localhost/oasr-triton:test-cpu"
ASSETS = "/opt/oasr/lib/python3.11/site-packages/oasr_backend/_data/assets"
READY_S = 240

pytestmark = pytest.mark.timeout(3600)


def engine(*arguments: str, check: bool = True, timeout_s: float = 3000) -> str:
    """Runs the engine; what it prints on standard output."""
    done = subprocess.run([*ENGINE, *arguments], capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0 or not check, f"{arguments[0]}: {done.stderr[-3000:]}{done.stdout[-3000:]}"
    return done.stdout.strip()


def succeeds(*arguments: str) -> bool:
    return subprocess.run([*ENGINE, *arguments], capture_output=True, timeout=300).returncode == 0


def base_name() -> str:
    match = re.search(r"^ARG BASE=(\S+)$", DOCKERFILE.read_text(), re.MULTILINE)
    assert match
    return match[1]


def import_debian(directory: Path) -> None:
    """A clean Debian 12 under the name of the Dockerfile's base image."""
    root = directory / "root"
    command = ["debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", str(root)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=1800)
    archive = directory / "root.tar"
    subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
    engine("import", str(archive), f"docker.io/library/{base_name()}")


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    base = os.environ.get("BASE", "")
    if base == "debootstrap" and not succeeds("image", "inspect", f"docker.io/library/{base_name()}"):
        import_debian(tmp_path_factory.mktemp("debian"))
    chosen = [] if base in ("", "debootstrap") else ["--build-arg", f"BASE={base}"]
    begin = time.monotonic()
    more = shlex.split(os.environ.get("BUILD_ARGS", ""))
    # Of the two formats that podman writes, the one that has health checks.
    form = ["--format", "docker"] if "podman" in ENGINE[0] else []
    engine("build", *form, *chosen, *more, "-f", str(DOCKERFILE), "-t", IMAGE, str(ROOT))
    size = int(json.loads(engine("image", "inspect", IMAGE))[0]["Size"])
    print(f"\nbuilt in {time.monotonic() - begin:.0f} s, {size / 1e6:.0f} MB")
    return IMAGE


class Container:
    """A running container; nothing of it is left after the `with` block."""

    def __init__(self, image: str, *arguments: str) -> None:
        # The flags of docker/compose.yaml, and no network at all: nothing may be fetched at the start.
        flags = ["--read-only", "--tmpfs", "/tmp:mode=1777,size=512m", "--shm-size", "1g", "--network", "none"]
        flags += ["--cap-drop", "all", "--security-opt", "no-new-privileges"]
        more = shlex.split(os.environ.get("RUN_ARGS", ""))
        self.id = engine("run", "-d", *flags, *more, *arguments, image).splitlines()[-1]

    def __enter__(self) -> "Container":
        return self

    def __exit__(self, *_: object) -> None:
        engine("rm", "-f", self.id)

    def exec(self, *command: str) -> str:
        return engine("exec", self.id, *command)

    def is_healthy(self) -> bool:
        return succeeds("exec", self.id, "oasr-healthcheck")

    def wait_healthy(self) -> float:
        """Seconds until the health check passed."""
        begin = time.monotonic()
        while not self.is_healthy():
            assert self.state()["Running"], f"ended at the start:\n{self.log()}"
            assert time.monotonic() < begin + READY_S, f"not ready in {READY_S} s:\n{self.log()}"
            time.sleep(1)
        return time.monotonic() - begin

    def state(self) -> dict[str, object]:
        state: dict[str, object] = json.loads(engine("inspect", self.id))[0]["State"]
        return state

    def wait_ended(self, within_s: float) -> dict[str, object]:
        deadline = time.monotonic() + within_s
        while self.state()["Running"]:
            assert time.monotonic() < deadline, f"still running:\n{self.log()}"
            time.sleep(1)
        return self.state()

    def log(self) -> str:
        done = subprocess.run([*ENGINE, "logs", self.id], capture_output=True, text=True, timeout=60)
        return done.stdout + done.stderr

    def processes(self) -> dict[int, str]:
        """Command lines by process id, as the container numbers them; the image has no ps."""
        lines = self.exec("sh", "-c", r'for p in /proc/[0-9]*; do echo "${p#/proc/} $(tr "\0" " " < $p/cmdline)"; done')
        rows = [line.split(" ", 1) for line in lines.splitlines()]
        return {int(number): command for number, command in rows}


@pytest.fixture(scope="module")
def container(image: str) -> Iterator[Container]:
    checkpoint = ROOT / "assets" / "demo-en"
    arguments = ["-v", f"{checkpoint}:/checkpoints/demo:ro", "-e", "OASR_CHECKPOINT=/checkpoints/demo"]
    with Container(image, *arguments) as running:
        print(f"\nhealthy after {running.wait_healthy():.0f} s")
        yield running


def test_the_image_says_how_it_is_run(image: str) -> None:
    config = json.loads(engine("image", "inspect", image))[0]
    settings = config.get("Config") or config
    assert settings["User"] == "10001:10001"
    assert settings["Entrypoint"] == ["/usr/bin/tini", "--", "oasr"]
    assert settings["StopSignal"] in ("SIGTERM", "15")
    assert "/checkpoints" in settings["Volumes"]
    assert "oasr-healthcheck" in json.dumps(config)


def test_a_clip_is_transcribed_from_the_checkpoint_volume_without_network(container: Container) -> None:
    assert "SEVEN THREE NINE TWO ZERO FIVE" in container.exec("oasr", "transcribe", f"{ASSETS}/clips/digits.flac")
    assert container.exec("id", "-u") == "10001"
    (server,) = [pid for pid, command in container.processes().items() if "tritonserver --model" in command]
    environment = container.exec("cat", f"/proc/{server}/environ").split("\0")
    assert "OASR_CHECKPOINT=/checkpoints/demo" in environment


def test_the_root_cannot_be_written(container: Container) -> None:
    assert not succeeds("exec", container.id, "touch", "/opt/oasr/x")
    assert not succeeds("exec", container.id, "touch", "/checkpoints/demo/x")


def test_a_lost_model_process_makes_the_container_end_to_be_started_again(image: str) -> None:
    with Container(image) as running:
        running.wait_healthy()
        stubs = [pid for pid, command in running.processes().items() if "python_backend_stub" in command]
        assert len(stubs) >= 3
        running.exec("sh", "-c", f"kill -9 {' '.join(map(str, stubs))}")
        for _ in range(3):
            assert not running.is_healthy()
        running.wait_ended(120)
        assert "3 health checks failed in a row" not in running.log()


def test_stopping_drains_and_leaves_nothing(image: str, container: Container) -> None:
    begin = time.monotonic()
    engine("stop", "-t", "75", container.id)
    state = container.state()
    print(f"\nstopped in {time.monotonic() - begin:.1f} s")
    assert state["ExitCode"] == 0, container.log()
    assert "stopped" in container.log()
    left = [p for p in Path("/proc").glob("[0-9]*/cmdline") if _mentions(p, b"/opt/oasr/")]
    assert not left


def _mentions(path: Path, text: bytes) -> bool:
    try:
        return text in path.read_bytes()
    except OSError:
        return False
