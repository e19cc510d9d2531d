"""The targets that measurements are held against, by the name of their ratio."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A bound on one number: from above where `at_most`, else from below."""

    bound: float
    at_most: bool

    def is_met(self, value: float) -> bool:
        return value <= self.bound if self.at_most else value >= self.bound

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.bound:g}"


def _at_most(bound: float) -> Target:
    return Target(bound, at_most=True)


def _at_least(bound: float) -> Target:
    return Target(bound, at_most=False)


TARGETS = {
    "target1_step_over_gemm_bound": _at_most(1.35),
    "target1_throughput_over_onnx_float32": _at_least(3.0),
    "target1_throughput_over_onnx_int8": _at_least(4.0),
    "target2_one_stream_step_ms": _at_most(12.0),
    "target2_one_stream_step_over_onnx_int8": _at_most(1.0),
    "target3_step_growth_to_80_s": _at_most(1.10),
    "target3_step_growth_to_600_s": _at_most(1.25),
    "target4_throughput_over_onnx": _at_least(3.0),
    "target4_padding_factor": _at_most(1.11),
    "target4_packed_over_padded_throughput": _at_least(1.0),
    "target5_server_over_engine_32_streams": _at_least(0.75),
    "target5_server_over_engine_128_streams": _at_least(0.75),
    "target5_paced_p99_over_median_at_half_capacity": _at_most(3.0),
    "target6_seconds_to_ready": _at_most(10.0),
    "target6_streaming_memory_over_allowance": _at_most(1.0),
    "target6_offline_memory_over_allowance": _at_most(1.0),
    "target6_streaming_first_over_steady": _at_most(2.0),
    "target6_offline_first_over_steady": _at_most(2.0),
    "target7_max_step_over_median": _at_most(4.0),
}
