"""Whether a device still works."""

import torch

from oasr_backend.errors import DeviceLostError


def raise_if_lost(device: torch.device) -> None:
    """Raises DeviceLostError when a CUDA device answers every call with an error, as after an illegal access.

    Such an error sticks to the process: only a new one helps.
    """
    if device.type != "cuda":
        return
    try:
        torch.cuda.synchronize(device)
    except RuntimeError as error:
        raise DeviceLostError(
            f"{device} fails every call ({type(error).__name__}); the process must start anew"
        ) from error
