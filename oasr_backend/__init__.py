"""The speech recognition engine; knows nothing of Triton (the adapter is `oasr_backend.triton`)."""

__version__ = "0.1.0"
