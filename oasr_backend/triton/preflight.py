"""Examines the checkpoints that the models of a repository are about to load, in a process of its own.

`python -m oasr_backend.triton.preflight MODEL_FOLDER...` prints a report and exits with 0, or prints one sentence and
exits with 2 when a model would refuse to load. What it reads of the environment is what the models will read.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from oasr_backend.errors import CheckpointError, ConfigError
from oasr_backend.triton.decode_settings import load_decode_log_settings, load_decode_settings

REFUSED = 2
_DECODER = "audio_decode"


def main(folders: Sequence[Path]) -> int:
    """Prints the report, or why there is none; the exit status."""
    try:
        rows = examined(folders, os.environ)
    except (CheckpointError, ConfigError) as error:
        print(" ".join(str(error).split()))
        return REFUSED
    except ImportError as error:
        print(
            f"checking the checkpoint needs the package {error.name or error}, which cannot be imported: "
            'pip install "oasr-triton[server]"'
        )
        return REFUSED
    print("\n".join(rows))
    return 0


def examined(folders: Sequence[Path], environment: Mapping[str, str]) -> list[str]:
    """Lines on every checkpoint that these models would load; none where no model has an engine of ours.

    Raises CheckpointError or ConfigError for what a model would refuse.
    """
    parameters = {folder.name: _parameters(folder / "config.pbtxt") for folder in folders}
    if _DECODER in parameters:
        load_decode_settings(parameters[_DECODER], environment)
        load_decode_log_settings(parameters[_DECODER], environment)
    engines = [folder for folder in folders if "service_mode" in parameters[folder.name]]
    if not engines:
        return []
    # Imported here: other repositories need no engine, and this brings in torch.
    from oasr_backend.inspection.examination import Examination, Examiner
    from oasr_backend.inspection.report import client_rows, lines, report
    from oasr_backend.triton.settings import check_sample_rate, load_settings, version_settings

    examiner = Examiner()
    found: list[Examination] = []
    for given, version in (
        (parameters[folder.name], version_settings(of_version))
        for folder in engines
        for of_version in sorted(folder.iterdir())
        if of_version.name.isdigit()
    ):
        settings = load_settings(given, environment, given["service_mode"], version)
        examination = examiner.examine(settings.engine)
        check_sample_rate(examination.checkpoint.audio.sample_rate)
        found.append(examination)
    rows = []
    for checkpoint in dict.fromkeys(examination.checkpoint for examination in found):
        services = [examination.service for examination in found if examination.checkpoint == checkpoint]
        # Streams first, which most clients come for.
        services.sort(key=lambda service: service.step is None)
        rows += report(checkpoint, services)
        own = [name for name, given in parameters.items() if "service_mode" not in given]
        own += [f"oasr_{service.mode}" for service in services]
        rows += client_rows(checkpoint, services, own)
    return lines(rows)


def _parameters(config: Path) -> dict[str, str]:
    """The parameters of a model's config.pbtxt."""
    try:
        text = config.read_text(encoding="utf-8")
        parsed = text_format.Parse(text, model_config_pb2.ModelConfig(), allow_unknown_field=True)
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        raise ConfigError(f"{config} cannot be read as a model configuration ({error})") from error
    return {name: value.string_value for name, value in parsed.parameters.items()}


if __name__ == "__main__":
    sys.exit(main([Path(argument) for argument in sys.argv[1:]]))
