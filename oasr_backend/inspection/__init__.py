"""What a checkpoint is, what would be used to serve it here, and how it decodes: without a server."""

from oasr_backend.inspection.checking import Check, open_check
from oasr_backend.inspection.conversion import convert, quantize
from oasr_backend.inspection.report import client_rows, lines, report, summary
from oasr_backend.inspection.trial import Decoded, Trial, TrialError

__all__ = [
    "Check",
    "Decoded",
    "Trial",
    "TrialError",
    "client_rows",
    "convert",
    "lines",
    "open_check",
    "quantize",
    "report",
    "summary",
]
