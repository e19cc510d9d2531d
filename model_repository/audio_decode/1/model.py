from oasr_backend.triton.audio_decode_model import AudioDecodeModel as TritonPythonModel  # noqa: F401
