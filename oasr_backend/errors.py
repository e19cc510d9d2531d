"""Errors that name what is wrong, why, and what to do."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be loaded as it is."""


class ConfigError(ValueError):
    """A configuration value that is impossible, or contradicts another."""


class EngineFullError(RuntimeError):
    """No slot is free for another live stream."""


class DeviceLostError(RuntimeError):
    """The device fails every call; the process must start anew."""


class OptionError(ValueError):
    """A request's option that is impossible, or that the loaded model cannot honour."""


class AudioError(ValueError):
    """Audio that cannot be taken as it is; the sentence is fit for a client."""
