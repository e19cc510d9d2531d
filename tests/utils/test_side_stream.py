"""Work beside the forward passes of a GPU."""

import pytest
import torch

from oasr_backend.utils.side_stream import SideStream

gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
def test_what_is_made_beside_is_read_like_any_other(device: str) -> None:
    side = SideStream(torch.device(device))
    busy = torch.randn(1024, 1024, device=device)
    for turn in range(20):
        busy = busy @ busy / 1024
        source = torch.full((256, 1024), float(turn))
        made = side.run(lambda source=source: source.to(device, non_blocking=True) * 2 + 1)
        assert made.sub(2 * turn + 1).abs().max().item() == 0


def test_what_goes_wrong_beside_is_raised() -> None:
    def fails() -> torch.Tensor:
        raise ValueError("no features")

    with pytest.raises(ValueError, match="no features"):
        SideStream(torch.device("cpu")).run(fails)
