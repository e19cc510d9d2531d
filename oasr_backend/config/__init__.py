"""What a user configures, and what the engine reads."""

from oasr_backend.config.engine_config import SERVICE_MODES, EngineConfig
from oasr_backend.config.resolved import ResolvedConfig, resolve

__all__ = ["SERVICE_MODES", "EngineConfig", "ResolvedConfig", "resolve"]
