# First, because the launcher puts our search path into it.
import triton_python_backend_utils  # noqa: F401

from oasr_backend.triton.streaming_model import StreamingModel as TritonPythonModel  # noqa: F401
