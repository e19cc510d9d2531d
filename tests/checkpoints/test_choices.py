"""Other weights, other units and another architecture than a checkpoint's own."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from oasr_backend.checkpoints.base import FORMATS, CheckpointFormat, load_checkpoint, register_checkpoint_format
from oasr_backend.checkpoints.bundle import save_bundle
from oasr_backend.errors import CheckpointError, ConfigError
from oasr_backend.models.base import MODELS, build_model, with_architecture
from oasr_backend.tokenizers.base import build_tokenizer
from tests.checkpoints.directory import CheckpointDirectory
from tests.golden.cases import CASES, GoldenCase

CASE = GoldenCase(CASES[0])


def scaled(source: Path, target: Path, factor: float) -> None:
    """Other weights of the same shapes."""
    state = {name: tensor * factor for name, tensor in torch.load(source, weights_only=True).items()}
    target.parent.mkdir(exist_ok=True)
    if target.suffix == ".safetensors":
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, target)
    else:
        torch.save(state, target)


@pytest.mark.parametrize("name", ["avg_30.pt", "avg_30.safetensors", "epochs/30.pt"])
def test_other_weights_of_the_directory(directory: CheckpointDirectory, name: str) -> None:
    scaled(directory.path / "final.pt", directory.path / name, 2.0)
    own, other = load_checkpoint(directory.path), load_checkpoint(directory.path, weights_name=name)
    assert (own.weights_name, other.weights_name) == ("final.pt", name)
    assert own.state.keys() == other.state.keys()
    weight = own.state["ctc.ctc_lo.weight"]
    assert torch.equal(other.state["ctc.ctc_lo.weight"], weight * 2)
    assert weight.any()


def test_weights_that_are_links_out_of_the_directory_are_read(directory: CheckpointDirectory, tmp_path: Path) -> None:
    """A cache keeps its files elsewhere."""
    (directory.path / "final.pt").rename(tmp_path / "blob")
    (directory.path / "final.pt").symlink_to("../blob")
    assert load_checkpoint(directory.path).state.keys() == CASE.checkpoint.state.keys()


def test_the_own_weights_need_not_be_there_when_others_are_named(directory: CheckpointDirectory) -> None:
    (directory.path / "final.pt").rename(directory.path / "avg_30.pt")
    assert load_checkpoint(directory.path, weights_name="avg_30.pt").state.keys() == CASE.checkpoint.state.keys()
    with pytest.raises(
        CheckpointError, match=r"holds no final\.pt; name one of avg_30\.pt as checkpoint_name, or copy"
    ):
        load_checkpoint(directory.path)


def test_weights_that_are_not_there_are_refused_with_those_that_are(directory: CheckpointDirectory) -> None:
    for name in ("avg_10.pt", "model.safetensors"):
        (directory.path / name).write_bytes(b"")
    with pytest.raises(
        CheckpointError, match=r"no avg_30\.pt; name one of avg_10\.pt, final\.pt, model\.safetensors as"
    ):
        load_checkpoint(directory.path, weights_name="avg_30.pt")


@pytest.mark.parametrize("name", ["../final.pt", "epochs/../../final.pt", "/final.pt", ".."])
def test_weights_outside_the_directory_are_refused(directory: CheckpointDirectory, name: str) -> None:
    shutil.copyfile(directory.path / "final.pt", directory.path.parent / "final.pt")
    with pytest.raises(CheckpointError, match=r"checkpoint_name is '.*', which leaves the checkpoint"):
        load_checkpoint(directory.path, weights_name=name)


@pytest.mark.parametrize("name", ["train.yaml", "final.onnx", "final", "", "."])
def test_files_of_other_kinds_are_no_weights(directory: CheckpointDirectory, name: str) -> None:
    with pytest.raises(CheckpointError, match=rf"checkpoint_name is '{name}'; name a \.pt or \.safetensors file"):
        load_checkpoint(directory.path, weights_name=name)


def test_damaged_safetensors_are_refused(directory: CheckpointDirectory) -> None:
    (directory.path / "other.safetensors").write_bytes(b"not tensors")
    with pytest.raises(CheckpointError, match=r"other\.safetensors cannot be read as safetensors"):
        load_checkpoint(directory.path, weights_name="other.safetensors")


def reversed_units(source: Path, target: Path) -> Path:
    """The same units in another order, so that every token is another text."""
    units = [line.split()[0] for line in source.read_text(encoding="utf-8").splitlines()]
    lines = [f"{unit} {number}\n" for number, unit in enumerate([units[0], *units[:0:-1]])]
    target.write_text("".join(lines), encoding="utf-8")
    return target


def test_other_units_from_anywhere(directory: CheckpointDirectory, tmp_path: Path) -> None:
    table = reversed_units(directory.path / "units.txt", tmp_path / "own.txt")
    own, other = load_checkpoint(directory.path), load_checkpoint(directory.path, unit_table=table)
    size = own.model.vocab_size
    pieces = [build_tokenizer(one.tokenizer, size).piece(5) for one in (own, other)]
    assert pieces[0] and pieces[1] and pieces[0] != pieces[1]
    # Its own are not even looked for.
    (directory.path / "units.txt").unlink()
    assert load_checkpoint(directory.path, unit_table=table).tokenizer.unit_table == table


def test_a_bundle_takes_other_units_and_no_other_weights(tmp_path: Path) -> None:
    save_bundle(CASE.checkpoint, tmp_path / "bundle")
    table = reversed_units(CASE.path / "units.txt", tmp_path / "own.txt")
    assert load_checkpoint(tmp_path / "bundle", unit_table=table).tokenizer.unit_table == table
    with pytest.raises(CheckpointError, match=r"checkpoint_name is 'avg_30\.pt', but .*'oasr' has one weights file"):
        load_checkpoint(tmp_path / "bundle", weights_name="avg_30.pt")


def test_a_unit_table_that_is_not_there_is_named(directory: CheckpointDirectory, tmp_path: Path) -> None:
    for table in (tmp_path / "nowhere.txt", tmp_path):
        with pytest.raises(CheckpointError, match=f"unit_table {table} is no file"):
            load_checkpoint(directory.path, unit_table=table)


@pytest.fixture
def plain_format(tmp_path: Path) -> Iterator[Path]:
    """A format whose loader takes a directory and nothing else."""
    register_checkpoint_format(
        CheckpointFormat("plain", lambda path: (path / "plain").is_file(), lambda path: CASE.checkpoint)
    )
    (tmp_path / "plain").touch()
    yield tmp_path
    del FORMATS["plain"]


def test_a_format_without_choices_is_asked_for_none(plain_format: Path) -> None:
    assert load_checkpoint(plain_format) is CASE.checkpoint
    with pytest.raises(CheckpointError, match=r"checkpoint_name is 'a\.pt', but .*'plain' has one weights file"):
        load_checkpoint(plain_format, weights_name="a.pt")
    with pytest.raises(CheckpointError, match=r"unit_table is '.*plain', but .*'plain' takes no other than its own"):
        load_checkpoint(plain_format, unit_table=plain_format / "plain")


def test_an_architecture_is_forced_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    monkeypatch.setitem(MODELS, "mine", lambda checkpoint, device, dtype: built.append(checkpoint))
    build_model(with_architecture(CASE.checkpoint, "mine"), torch.device("cpu"), torch.float32)
    assert [checkpoint.model.architecture for checkpoint in built] == ["mine"]
    assert CASE.checkpoint.model.architecture == "conformer"


def test_no_architecture_is_the_checkpoints() -> None:
    assert with_architecture(CASE.checkpoint, None) is CASE.checkpoint


def test_an_architecture_that_is_not_registered_is_refused_with_the_registered() -> None:
    with pytest.raises(
        ConfigError, match=r"^architecture is 'zipformer'; choose a registered one: conformer, transformer"
    ):
        with_architecture(CASE.checkpoint, "zipformer")
