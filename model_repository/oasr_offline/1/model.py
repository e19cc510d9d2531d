from oasr_backend.triton.offline_model import OfflineModel as TritonPythonModel  # noqa: F401
