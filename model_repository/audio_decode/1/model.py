# First, because the launcher puts our search path into it.
import triton_python_backend_utils  # noqa: F401

from oasr_backend.triton.audio_decode_model import AudioDecodeModel as TritonPythonModel  # noqa: F401
