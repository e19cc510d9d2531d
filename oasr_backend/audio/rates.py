"""Sample rates in Hz: the models' own, and those that audio may come at."""

from oasr_backend.errors import AudioError

SAMPLE_RATE = 16000
"""What the engine models take; WAV and PCM are at this rate unless another is declared."""
MIN_RATE = 8000
# Above every recorder's: a header that says more only serves to blow a small file up.
MAX_RATE = 384_000


def check_rate(rate: int, what: str) -> None:
    """Raises AudioError for a rate that audio does not come at; `what` has it, as in `AUDIO is at`."""
    if not MIN_RATE <= rate <= MAX_RATE:
        raise AudioError(f"{what} {rate} Hz; send audio of {MIN_RATE} to {MAX_RATE} Hz")
