"""The native bundle, and the commands that inspect and convert."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

import oasr_backend.engine  # noqa: F401
from oasr_backend.checkpoints.base import load_checkpoint
from oasr_backend.checkpoints.bundle import save_bundle
from oasr_backend.engine import ASREngine, EngineConfig
from oasr_backend.errors import CheckpointError
from oasr_backend.models.base import build_model
from oasr_backend.utils.paths import assets_dir, demo_checkpoint_dir
from oasr_client.main import main
from tests.golden.cases import CASES, CPU, GoldenCase, recorded_fbank, wave

TINY = GoldenCase(CASES[0]).path
CLIP = assets_dir() / "clips" / "digits.flac"


@pytest.mark.parametrize("name", CASES)
@torch.inference_mode()
def test_a_bundle_gives_the_same_numbers(name: str, tmp_path: Path) -> None:
    case = GoldenCase(name)
    save_bundle(case.checkpoint, tmp_path / "bundle")
    loaded = load_checkpoint(tmp_path / "bundle")
    assert (loaded.format, loaded.model, loaded.features) == ("oasr", case.checkpoint.model, case.checkpoint.features)
    features = torch.from_numpy(recorded_fbank(1))[None]
    lengths = torch.tensor([case.recorded_frames(1)])
    ours = build_model(loaded, CPU, torch.float32).encode_clips(features, lengths)
    assert torch.equal(ours, case.model.encode_clips(features, lengths))


def test_a_bundle_gives_the_same_text_without_its_source(tmp_path: Path) -> None:
    case = GoldenCase("u2pp_conformer_bpe")
    save_bundle(case.checkpoint, tmp_path / "bundle")
    assert {path.name for path in (tmp_path / "bundle" / "tokenizer").iterdir()} == {"units.txt", "bpe.model"}
    config = {"dtype": "float32", "gc_freeze": False, "max_batch_size": 1, "max_blocks_per_seq": 32}
    expected = ASREngine(EngineConfig(ckpt_dir=str(case.path), **config)).transcribe(wave(1))
    assert expected
    assert ASREngine(EngineConfig(ckpt_dir=str(tmp_path / "bundle"), **config)).transcribe(wave(1)) == expected


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    save_bundle(GoldenCase(CASES[0]).checkpoint, tmp_path / "bundle")
    return tmp_path / "bundle"


def test_nothing_is_written_over(bundle: Path) -> None:
    with pytest.raises(CheckpointError, match="not empty"):
        save_bundle(GoldenCase(CASES[0]).checkpoint, bundle)


def test_another_version_is_refused(bundle: Path) -> None:
    document = json.loads((bundle / "oasr_config.json").read_text(encoding="utf-8"))
    (bundle / "oasr_config.json").write_text(json.dumps({**document, "format_version": 2}), encoding="utf-8")
    with pytest.raises(CheckpointError, match="format_version 2"):
        load_checkpoint(bundle)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"format_version": 1}', '{"format_version": 1, "model": 3}'])
def test_a_damaged_configuration_is_refused(bundle: Path, content: str) -> None:
    (bundle / "oasr_config.json").write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"oasr_config\.json"):
        load_checkpoint(bundle)


def test_damaged_weights_are_refused(bundle: Path) -> None:
    (bundle / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        load_checkpoint(bundle)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "oasr_client.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def test_check_tells_what_a_checkpoint_is_and_decodes_with_it() -> None:
    done = run("check", demo_checkpoint_dir(), assets_dir() / "clips" / "digits.flac")
    assert done.returncode == 0, done.stderr
    for fact in ("conformer", "U2++", "230 units: BPE pieces", "any size (dynamic", "the same text both ways"):
        assert fact in done.stdout
    # Offline and streaming.
    assert done.stdout.count("SEVEN THREE NINE TWO ZERO FIVE") == 2
    assert "SEVEN\n" in done.stdout


Here = Callable[..., tuple[int, str, str]]


@pytest.fixture
def oasr(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    """A command in this process: exit status, output and errors."""
    # Else the command would choose for the whole process.
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")

    def run_here(*arguments: object) -> tuple[int, str, str]:
        try:
            status = main([*map(str, arguments)])
        except SystemExit as error:
            status = int(error.code or 0)
        told = capsys.readouterr()
        return status, told.out, told.err

    return run_here


@pytest.fixture
def check(oasr: Here) -> Here:
    return partial(oasr, "check", "--max-sequences", "2", "--num-threads", "1")


def test_check_takes_several_files_and_tells_which_fail(check: Here, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("no audio\n" * 100)
    words = ("--quiet", "--decode-method", "attention_rescoring", "--option", "n_best=2", "--dtype", "float32")
    status, told, errors = check(demo_checkpoint_dir(), notes, CLIP, *words)
    assert status == 1
    assert errors.count("\n") == 1 and "notes.txt" in errors
    first, *others = told.splitlines()
    assert first.startswith(str(demo_checkpoint_dir())) and "float32 on cpu" in first
    assert told.count("SEVEN THREE NINE TWO ZERO FIVE") == 2
    assert len(others) == 5


def test_check_as_json(check: Here) -> None:
    status, told, _ = check("--json", demo_checkpoint_dir(), CLIP, "/nowhere.wav")
    assert status == 1
    document = json.loads(told)
    assert document["checkpoint"]["units"] == "BPE pieces"
    assert [service["mode"] for service in document["services"]] == ["streaming", "offline"]
    assert document["services"][0]["pool"]["streams"] == 2
    good, bad = document["files"]
    assert good["offline"]["text"] == good["streaming"]["text"] == "SEVEN THREE NINE TWO ZERO FIVE"
    assert good["differences"] == [] and good["offline"]["rtf"] > 0 and good["audio_seconds"] > 2
    assert [word["word"] for word in good["offline"]["words"]] == good["offline"]["text"].split()
    assert "/nowhere.wav" in bad["error"]


def test_check_tells_where_a_stream_and_the_whole_clip_differ(check: Here) -> None:
    """Its centred convolution hears the edges of chunks."""
    status, told, _ = check("--quiet", GoldenCase("u2_conformer_bn_noncausal").path, CLIP, "--chunk-size", "4")
    assert status == 0
    assert "  they differ: offline " in told and "the same text" not in told


def test_check_decodes_whole_clips_alone_where_the_model_cannot_stream(check: Here) -> None:
    status, told, _ = check(GoldenCase("conformer_offline").path, CLIP)
    assert status == 0
    assert "whole clips only" in told and "  offline " in told
    assert "  streaming" not in told and "the same text" not in told


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("--option", "nonsense=1"), 1, "nonsense"),
        (("--option", "n_best=3"), 1, "n_best"),
        (("--device", "toaster"), 2, "toaster"),
        (("--dtype", "int4"), 2, "int4"),
        (("--decode-method", "guessing"), 2, "guessing"),
        (("--chunk-size", "0"), 2, "--chunk-size"),
    ],
)
def test_check_refuses_in_one_sentence(check: Here, words: tuple[str, ...], status: int, told: str) -> None:
    found, _, errors = check(TINY, CLIP, *words)
    last = errors.splitlines()[-1]
    assert (found, told in last, "Traceback" in errors) == (status, True, False)


def test_check_names_what_is_wrong_in_one_line(oasr: Here, tmp_path: Path) -> None:
    status, _, errors = oasr("check", tmp_path)
    assert status == 2
    assert errors.startswith("oasr: ")
    assert len(errors.splitlines()) == 1
    assert "no checkpoint of a known format" in errors


def test_convert_writes_a_bundle_that_check_takes(oasr: Here, check: Here, tmp_path: Path) -> None:
    assert run("convert", TINY, tmp_path / "bundle").returncode == 0
    status, told, errors = check(tmp_path / "bundle")
    assert status == 0, errors
    assert "oasr" in told
    status, _, errors = oasr("convert", TINY, tmp_path / "bundle")
    assert status == 2
    assert "not empty" in errors


def test_quantize_writes_a_bundle_that_check_takes(oasr: Here, check: Here, tmp_path: Path) -> None:
    done = run("quantize", demo_checkpoint_dir(), tmp_path / "bundle", "--ignore", "decoder.*")
    assert done.returncode == 0, done.stderr
    status, told, errors = check(tmp_path / "bundle", CLIP)
    assert status == 0, errors
    assert "int8_w8a8" in told
    assert "SEVEN THREE NINE TWO ZERO FIVE" in told
    status, _, errors = oasr("quantize", tmp_path / "bundle", tmp_path / "again")
    assert status == 2
    assert errors.startswith("oasr: ")
    assert len(errors.splitlines()) == 1
    assert "quantized already" in errors
