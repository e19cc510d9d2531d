"""docker/.env.example names every setting, and nothing that would stop a server."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from oasr_backend.audio.limits import AudioLimits
from oasr_backend.config import EngineConfig, env_example
from oasr_backend.triton.decode_settings import load_decode_settings
from oasr_backend.triton.overrides import FOREIGN
from oasr_backend.triton.settings import FIXED, AdapterSettings, load_settings

FILE = Path(__file__).parents[2] / "docker" / ".env.example"
PARAMETERS = {"service_mode": "offline"}


def entries() -> dict[str, str]:
    """What the file would set if every # before a variable were taken away."""
    return dict(re.findall(r"^#([A-Z][A-Z0-9_]*)=(.*)$", FILE.read_text(encoding="utf-8"), re.MULTILINE))


def test_the_file_is_the_rendering() -> None:
    assert FILE.read_text(encoding="utf-8") == env_example.render(), "run `make docs`"


def test_every_setting_is_there_once() -> None:
    names = re.findall(r"^#(OASR_[A-Z0-9_]*)=", FILE.read_text(encoding="utf-8"), re.MULTILINE)
    settings = {field.name for owner in (EngineConfig, AdapterSettings, AudioLimits) for field in fields(owner)}
    assert sorted(names) == sorted(f"OASR_{name.upper()}" for name in (settings - FIXED) | FOREIGN)


def test_nothing_is_set_as_it_comes() -> None:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    assert all(not line or line.startswith("#") for line in lines)
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("name", [name for name in entries() if name.startswith("OASR_")])
def test_a_setting_is_taken_as_it_stands(name: str) -> None:
    value = entries()[name]
    given = {"OASR_CHECKPOINT": "/checkpoints/model", name: value or "/checkpoints/model"}
    if name in {f"OASR_{field.name.upper()}" for field in fields(AudioLimits)}:
        load_decode_settings({}, given)
    load_settings(PARAMETERS, given, "offline")
