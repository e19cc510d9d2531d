"""What a call by WeNet's name costs beside one by ours: latency of a chunk, CPU time of the server process.

    python -m benchmarks.compat_names --json FILE [--rounds 60]

One client, one stream at a time; streams by either name take turns. Chunks of 640 ms make a step each, those of 20 ms
hardly ever, so that they show the way there and back alone. Both send WAV with WAV_LENS, as the public clients do.
"""

import argparse
import time
from collections import defaultdict
from itertools import count

import numpy as np
import tritonclient.grpc as triton

from benchmarks import command
from benchmarks.processes import server_usage
from benchmarks.reporting import Report, Row, publish
from benchmarks.serving import recording
from benchmarks.timing import Times
from oasr_backend.serve import RunningServer, running_server
from oasr_backend.utils.paths import demo_checkpoint_dir

_NAMES = ("oasr_streaming", "streaming_wenet")
_CHUNKS = {640: 12, 20: 100}
_WARM_ROUNDS = 5


def stream(client: triton.InferenceServerClient, name: str, chunks: list[np.ndarray], sequence_id: int) -> list[float]:
    """Seconds of each chunk but the first and the last."""
    seconds = []
    for number, chunk in enumerate(chunks):
        wav, length = triton.InferInput("WAV", chunk.shape, "FP32"), triton.InferInput("WAV_LENS", [1, 1], "INT32")
        wav.set_data_from_numpy(chunk)
        length.set_data_from_numpy(np.array([[chunk.shape[1]]], dtype=np.int32))
        begin = time.perf_counter()
        client.infer(
            name,
            [wav, length],
            outputs=[triton.InferRequestedOutput("TRANSCRIPTS")],
            sequence_id=sequence_id,
            sequence_start=number == 0,
            sequence_end=number == len(chunks) - 1,
        )
        seconds.append(time.perf_counter() - begin)
    return seconds[1:-1]


def measure(
    server: RunningServer, chunk_ms: int, rounds: int, first_id: int
) -> tuple[dict[str, Times], dict[str, float]]:
    """Latencies, and milliseconds of CPU per chunk of the server process, by name."""
    number = _CHUNKS[chunk_ms]
    samples = recording(chunk_ms * number / 1000).astype(np.float32) / 32768
    chunks = [np.ascontiguousarray(part[None]) for part in np.split(samples, number)]
    latencies: dict[str, list[float]] = defaultdict(list)
    cpu: dict[str, float] = defaultdict(float)
    ids = count(first_id)
    with triton.InferenceServerClient(server.grpc_url) as client:
        for turn in range(_WARM_ROUNDS + rounds):
            for name in _NAMES if turn % 2 else reversed(_NAMES):
                before = server_usage(server.pid)["tritonserver"].cpu_s
                seconds = stream(client, name, chunks, next(ids))
                if turn >= _WARM_ROUNDS:
                    latencies[name] += seconds
                    cpu[name] += server_usage(server.pid)["tritonserver"].cpu_s - before
    times = {name: Times.of_seconds(latencies[name]) for name in _NAMES}
    return times, {name: 1000 * cpu[name] / rounds / number for name in _NAMES}


def rows_of(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, float]]:
    rows: list[Row] = []
    ratios = {}
    settings = {"OASR_DTYPE": arguments.dtype}
    with running_server(
        arguments.checkpoint, models=_NAMES[:1], compat_names=True, num_threads=arguments.threads, environment=settings
    ) as server:
        for index, chunk_ms in enumerate(_CHUNKS):
            times, cpu = measure(server, chunk_ms, arguments.rounds, 1 + index * 1_000_000)
            for name in _NAMES:
                rows.append(
                    {"chunk ms": chunk_ms, "name": name, **times[name].columns(), "server CPU ms a chunk": cpu[name]}
                )
            own, other = (times[name].median for name in _NAMES)
            ratios[f"compat_{chunk_ms}ms_median"] = other / own
    return rows, ratios


def main() -> None:
    parser = command.make_parser(__doc__)
    parser.set_defaults(checkpoint=demo_checkpoint_dir())
    parser.add_argument("--rounds", type=int, default=60)
    arguments = command.parse(parser)
    rows, ratios = rows_of(arguments)
    publish(
        Report(
            benchmark="compat_names",
            dtype=command.dtype_name(command.dtype_of(arguments)),
            threads=arguments.threads,
            settings={"checkpoint": arguments.checkpoint.name, "rounds": arguments.rounds},
            tables={"by name": rows},
            ratios=ratios,
        ),
        arguments.json,
    )


if __name__ == "__main__":
    main()
