"""Input data for NVIDIA's perf_analyzer, and the program itself where pip cannot install it."""
