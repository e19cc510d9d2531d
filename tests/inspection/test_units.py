"""What units are is told by their look."""

import pytest

from oasr_backend.inspection.units import kind_of_units


@pytest.mark.parametrize(
    ("units", "kind"),
    [
        (["<blank>", "<unk>", "▁", "▁THE", "S", "ING", "<sos/eos>"], "BPE pieces"),
        (["<blank>", "th@@", "e"], "BPE pieces"),
        (["<blank>", "<unk>", "一", "丁", "七", "<sos/eos>"], "characters"),
        (["<blank>", "a", "b", "'", "<space>"], "characters"),
        (["<blank>", "一", "丁", "七", "三", "▁THE", "▁OF"], "characters and BPE pieces"),
        (["<blank>", "yes", "no", "stop", "<sos/eos>"], "words"),
    ],
)
def test_kinds(units: list[str], kind: str) -> None:
    assert kind_of_units(units) == kind
