# First, because the launcher puts our search path into it.
import triton_python_backend_utils  # noqa: F401

from oasr_backend.triton.offline_model import OfflineModel as TritonPythonModel  # noqa: F401
