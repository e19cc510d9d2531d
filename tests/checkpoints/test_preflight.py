"""What `oasr serve` finds out before it starts anything: one sentence for what is refused, a report for the rest."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from oasr_backend.server.compat import compat_models
from oasr_backend.server.errors import LaunchError, Refused, StartCancelled
from oasr_backend.server.options import ServeOptions
from oasr_backend.server.preflight import preflight
from oasr_backend.triton.preflight import main
from oasr_backend.utils.paths import demo_checkpoint_dir, model_repository_dir
from tests.checkpoints.directory import ABSENT, CheckpointDirectory

ALL = tuple(sorted(path.parent for path in model_repository_dir().glob("*/config.pbtxt")))
OFFLINE = tuple(folder for folder in ALL if folder.name != "oasr_streaming")

Told = Callable[..., tuple[int, str]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Told:
    """Exit status and output of the check of a checkpoint for some models, with further variables."""
    for name in [name for name in os.environ if name.startswith("OASR_")]:
        monkeypatch.delenv(name)

    def check(checkpoint: Path, folders: tuple[Path, ...] = ALL, **variables: str) -> tuple[int, str]:
        for name, value in {"OASR_CHECKPOINT": str(checkpoint), **variables}.items():
            monkeypatch.setenv(name, value)
        return main(folders), capsys.readouterr().out

    return check


def remove_a_weight(state: dict[str, Tensor]) -> None:
    del state["encoder.encoders.0.norm_ff.weight"]


def diverge(state: dict[str, Tensor]) -> None:
    state["encoder.encoders.0.norm_ff.weight"][3] = float("nan")


def test_the_report_of_the_bundled_checkpoint(told: Told) -> None:
    status, report = told(demo_checkpoint_dir(), (*ALL, *compat_models(("oasr_streaming", "oasr_offline")).values()))
    assert status == 0
    for part in (
        "conformer, U2++, 4.06 million parameters",
        "230 units: BPE pieces",
        "any size (dynamic",
        "causal convolution of 8",
        "128 at once, each sees its last",
        "32 in a batch at the most",
        "10240 samples (640 ms)",
        "streaming_wenet",
        "attention_rescoring  clips",
        "oasr_transcribe",
    ):
        assert part in report
    # Both services share it.
    assert report.count("architecture") == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("OASR_MAX_AUDIO_MIB", "none"), ("OASR_DECODE_SPEED", "1"), ("OASR_DECODE_LOG_LEVEL", "LOUD")],
)
def test_settings_of_the_model_that_decodes_files_are_examined_too(told: Told, name: str, value: str) -> None:
    status, sentence = told(demo_checkpoint_dir(), **{name: value})
    assert status == 2
    assert name.rpartition("_")[2].lower() in sentence
    assert len(sentence.splitlines()) == 1


def test_settings_of_the_environment_count_as_they_do_for_the_models(told: Told) -> None:
    settings = {"OASR_CHUNK_SIZE": "8", "OASR_STREAMING_MAX_SEQUENCES": "5", "OASR_OFFLINE_MAX_BATCH_SIZE": "7"}
    status, report = told(demo_checkpoint_dir(), **settings)
    assert status == 0
    for part in ("8 frames (320 ms)", "5120 samples", "5 at once", "7 in a batch"):
        assert part in report
    for name, value, word in (
        ("OASR_CHUNK_SIZE", "many", "chunk_size"),
        ("OASR_NONSENSE", "1", "nonsense"),
        ("OASR_STREAMING_MAX_NUM_BLOCKS", "9", "lower max_batch_size"),
        ("OASR_DECODE_METHOD", "guessing", "guessing"),
    ):
        status, sentence = told(demo_checkpoint_dir(), **{name: value})
        assert (status, sentence.count("\n")) == (2, 1)
        assert word in sentence
        os.environ.pop(name)


def test_two_checkpoints_have_a_report_each(told: Told, directory: CheckpointDirectory) -> None:
    status, report = told(demo_checkpoint_dir(), OASR_OFFLINE_CHECKPOINT=str(directory.path))
    assert status == 0
    assert report.count("architecture") == 2
    assert str(directory.path) in report and str(demo_checkpoint_dir()) in report


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda one: (one.path / "final.pt").unlink(), "holds no final.pt"),
        (lambda one: (one.path / "units.txt").unlink(), "no unit table"),
        (lambda one: (one.path / "global_cmvn").write_text("[1, 2]"), "global_cmvn"),
        (lambda one: (one.path / "train.yaml").write_text("words\n"), "train.yaml"),
        (lambda one: (one.path / "final.pt").write_bytes(b"no pickle"), "plain weights"),
        (lambda one: one.set("output_dim", 51), "50 units but the model has output_dim 51"),
        (lambda one: one.set("encoder", "branchformer"), "branchformer"),
        (lambda one: one.set("encoder_conf.num_blocks", 9), "weights do not fit train.yaml"),
        (lambda one: one.set("output_dim", ABSENT), "output_dim is missing"),
        (lambda one: one.set("dataset_conf.resample_conf.resample_rate", 8000), "takes 8000 Hz"),
        (lambda one: one.change_state(remove_a_weight), "missing: encoder.encoders.0.norm_ff.weight"),
        (lambda one: one.change_state(diverge), "norm_ff.weight holds numbers that are not finite"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_sentence(
    told: Told, directory: CheckpointDirectory, damage: Callable[[CheckpointDirectory], None], words: str
) -> None:
    damage(directory)
    status, sentence = told(directory.path)
    assert (status, sentence.count("\n")) == (2, 1)
    assert words in sentence


def test_a_model_of_whole_clips_is_refused_for_streams_and_told_how_to_be_served(
    told: Told, make_directory: Callable[[str], CheckpointDirectory]
) -> None:
    path = make_directory("conformer_offline").path
    status, sentence = told(path)
    assert status == 2
    assert "cannot stream" in sentence and "--models audio_decode,oasr_offline,oasr_transcribe" in sentence
    status, report = told(path, OFFLINE)
    assert status == 0
    assert "it cannot stream" in report and "oasr_streaming" not in report


class Payload:
    """Runs code when it is unpickled."""

    def __init__(self, mark: Path):
        self._mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self._mark,)


def test_code_in_the_weights_is_refused_and_never_run(
    told: Told, directory: CheckpointDirectory, tmp_path: Path
) -> None:
    mark = tmp_path / "the payload ran"
    value = {"w": torch.ones(1), "x": Payload(mark)}
    torch.save(value, directory.path / "final.pt")
    status, sentence = told(directory.path)
    assert (status, sentence.count("\n")) == (2, 1)
    assert "plain weights" in sentence
    assert not mark.exists()
    # The payload is a real one.
    pickle.loads(pickle.dumps(value))
    assert mark.exists()


def test_models_of_others_are_left_to_the_server(told: Told, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "config.pbtxt").write_text('backend: "python"\nmax_batch_size: 8\n')
    assert told(tmp_path / "nothing", (folder,)) == (0, "\n")
    (folder / "config.pbtxt").write_text("backend: {\n")
    status, sentence = told(tmp_path / "nothing", (folder,))
    assert (status, sentence.count("\n")) == (2, 1)
    assert "cannot be read as a model configuration" in sentence


def test_the_launcher_asks_in_a_process_of_its_own(directory: CheckpointDirectory) -> None:
    options = ServeOptions(checkpoint=directory.path, compat_names=True)
    told = preflight(options)
    assert any(line.startswith("architecture") for line in told)
    assert any(line.startswith("streaming_wenet") for line in told)
    directory.change_state(remove_a_weight)
    with pytest.raises(Refused, match=r"missing: encoder\.encoders\.0\.norm_ff\.weight \[64\]") as caught:
        preflight(options)
    assert caught.value.exit_status == 2 and isinstance(caught.value, LaunchError)
    with pytest.raises(StartCancelled):
        preflight(options, cancelled=lambda: True)
