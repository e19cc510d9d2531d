"""Which version of a model a request is for, where the server has several side by side."""

# Ensembles: the version of what they call stands in their configuration, whatever version of theirs is asked for.
_CALLS = {
    "oasr_transcribe": "oasr_offline",
    "streaming_wenet": "oasr_streaming",
    "attention_rescoring": "oasr_offline",
}


def versioned(model: str, version: int | None) -> str:
    """`model`, NAME or NAME:VERSION, as requests name it; `version` None leaves it as it is.

    Raises:
        ValueError: a version below 1, a second one, or one of a model that hands requests on to the highest version of
            another.
    """
    name, _, named = model.partition(":")
    if version is None and not named:
        return model
    if name in _CALLS:
        raise ValueError(
            f"{name} hands requests on to the highest version of {_CALLS[name]}; name {_CALLS[name]} to choose one"
        )
    if version is None:
        return model
    if named:
        raise ValueError(f"model {model} names a version and model_version is {version}; give it once")
    if version < 1:
        raise ValueError(f"model_version is {version}; versions are whole numbers from 1")
    return f"{name}:{version}"
