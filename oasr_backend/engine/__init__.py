"""The engine's public names."""

from oasr_backend.config import EngineConfig
from oasr_backend.decode.words import TimedWord
from oasr_backend.engine.engine import Admission, ASREngine, RequestSpec
from oasr_backend.engine.options import DecodingOptions
from oasr_backend.engine.request import RequestOutput

__all__ = ["ASREngine", "Admission", "DecodingOptions", "EngineConfig", "RequestOutput", "RequestSpec", "TimedWord"]
