"""Starting, watching and ending the real tritonserver process; the façade is `oasr_backend.serve`."""
