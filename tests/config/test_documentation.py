"""The page that lists the settings says what the code does."""

from dataclasses import fields
from pathlib import Path

import pytest

from oasr_backend.audio.limits import AudioLimits
from oasr_backend.config import EngineConfig, documentation
from oasr_backend.config.fields import GROUPS
from oasr_backend.triton.settings import AdapterSettings

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_is_the_rendering() -> None:
    assert PAGE.read_text(encoding="utf-8") == documentation.render(), "run `make docs`"


@pytest.mark.parametrize("group", [*GROUPS, AdapterSettings, AudioLimits])
def test_every_field_is_described(group: type) -> None:
    docs = documentation.field_docs(group)
    assert set(docs) == {field.name for field in fields(group)}
    for name, text in docs.items():
        assert text.endswith("."), name
        assert "\n" not in text


def test_every_field_has_one_row() -> None:
    rows = [line.split(" | ") for line in documentation.render().splitlines() if line.startswith("| `")]
    named = [row[0].strip("|` ") for row in rows]
    owners = (EngineConfig, AdapterSettings, AudioLimits)
    assert sorted(named) == sorted(field.name for owner in owners for field in fields(owner))
    assert all(len(row) == 5 for row in rows)


def test_a_row_has_type_default_effect_and_variable() -> None:
    page = documentation.render()
    assert "| `max_num_blocks` | a whole number or None | `None` | Pages in the pool" in page
    assert "| `OASR_MAX_NUM_BLOCKS` |" in page
    assert "only `True` or `False` is taken. | `OASR_USE_TRANSDUCER_CUDA_GRAPHS` |" in page
    assert "OASR_SERVICE_MODE" not in page
