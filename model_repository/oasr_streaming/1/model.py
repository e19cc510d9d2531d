from oasr_backend.triton.streaming_model import StreamingModel as TritonPythonModel  # noqa: F401
