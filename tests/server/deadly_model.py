"""A streaming model whose engine thread can be made to die."""

from pathlib import Path

from tests.server.support import STREAMING, copied_repository

DEADLY_SAMPLES = 12345
MODEL = f'''
# First, for it lengthens the search path by that of the launcher.
import triton_python_backend_utils

from oasr_backend.triton.streaming_model import StreamingModel


class TritonPythonModel(StreamingModel):
    """Its engine thread dies of a chunk of one length."""

    def initialize(self, args):
        super().initialize(args)
        engine = self._engine
        feed_chunk = engine.feed_chunk

        def deadly_feed(request_id, chunk, is_last=False):
            feed_chunk(request_id, chunk, is_last)
            if len(chunk) == {DEADLY_SAMPLES}:
                engine.step = die

        def die():
            raise SystemExit("made to die")

        engine.feed_chunk = deadly_feed
'''


def deadly_repository(directory: Path, *models: str) -> Path:
    """A copy of these models, the streaming one deadly."""
    repository = copied_repository(directory, *models)
    (repository / STREAMING / "1" / "model.py").write_text(MODEL)
    return repository
