"""Too much at once, and clients that do not take what they have asked for."""

import random
import socket
import threading
import time
from collections import Counter

import grpc
import pytest
import tritonclient.grpc as triton_grpc
from tritonclient.grpc import service_pb2_grpc

from oasr_backend.serve import RunningServer
from tests.chaos.aftermath import unharmed
from tests.chaos.ledger import Ledger
from tests.chaos.watcher import holdings
from tests.server.support import (
    NOTHING,
    STREAMING,
    Pipeline,
    Stream,
    Wire,
    all_clips,
    as_pcm,
    clip,
    code_of,
    cut,
    inputs_of,
    new_id,
    references,
)

STARTS = 5000
ANSWERED_WITHIN_S = 60.0
GROWTH_MIB = 64.0
"""What a case may leave behind in memory; pools keep what they have once needed."""


@pytest.mark.timeout(600)
def test_a_flood_of_starts(server: RunningServer, seed: int, ledger: Ledger) -> None:
    """No END follows them. Who has a stream keeps it; who comes later gets in when the flood's streams have expired."""
    text = " ".join(references().values())
    with unharmed(server, seed, ledger, "flood of STARTs") as case, Wire(server) as wire:
        old = Stream(wire)
        pieces = cut(all_clips(), 6400)
        for piece in pieces[:3]:
            old.send(piece)
        with Pipeline(server) as flood:
            for _ in range(STARTS):
                flood.send(new_id(), inputs_of(NOTHING), start=True)
            answers = Counter(code_of(one) if isinstance(one, Exception) else "taken" for one in flood.answers())
        for piece in pieces[3:-1]:
            old.send(piece)
        assert old.send(pieces[-1], end=True) == text
        assert set(answers) == {"taken", "SERVER_FULL"}
        began = time.monotonic()
        case.neighbours.mark()
        case.neighbours.wait_for_a_round()
        full = sum(account.full for account in case.neighbours.accounts)
        case.amount = f"{STARTS} STARTs"
        case.note = (
            f"{answers['taken']} taken, {answers['SERVER_FULL']} refused; neighbours turned away {full} times, all "
            f"served after {time.monotonic() - began:.0f} s"
        )


@pytest.mark.timeout(600)
def test_a_client_that_does_not_read_its_answers(server: RunningServer, seed: int, ledger: Ledger) -> None:
    """Streams over gRPC whose answers pile up until the connection takes no more; then their clients go away."""
    before = holdings(server)
    requests = 0
    with unharmed(server, seed, ledger, "answers that nobody reads") as case:
        for _ in range(4):
            # A window of 64 KiB, and nobody who empties it.
            channel = grpc.insecure_channel(server.grpc_url, options=[("grpc.http2.bdp_probe", 0)])
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            asked = _endless(random.Random(seed), 2000)
            answers = stub.ModelStreamInfer(iter(asked))
            next(answers)
            requests += len(asked)
            time.sleep(3)
            answers.cancel()
            channel.close()
        grown = holdings(server)["tritonserver, MiB"] - before["tritonserver, MiB"]
        assert grown < GROWTH_MIB
        case.amount, case.note = f"{requests} requests", f"tritonserver {grown:+.0f} MiB"


def _endless(rng: random.Random, count: int) -> list[object]:
    """Requests of one stream of silence, whose answers hold as much as there is to tell."""
    sequence_id = new_id()
    samples = as_pcm(clip("digits.flac"))
    built = []
    for number in range(count):
        begin = rng.randrange(len(samples) - 1600)
        tensor = triton_grpc.InferInput("PCM", [1, 1600], "INT16")
        tensor.set_data_from_numpy(samples[None, begin : begin + 1600])
        built.append(
            triton_grpc._utils._get_inference_request(
                model_name=STREAMING,
                inputs=[tensor],
                model_version="",
                request_id=str(number),
                outputs=[triton_grpc.InferRequestedOutput("TRANSCRIPTS"), triton_grpc.InferRequestedOutput("RESULT")],
                sequence_id=sequence_id,
                sequence_start=number == 0,
                sequence_end=False,
                priority=0,
                timeout=None,
                parameters={"word_timestamps": True} if number == 0 else None,
            )
        )
    return built


@pytest.mark.timeout(600)
def test_bodies_that_come_drop_by_drop(server: RunningServer, seed: int, ledger: Ledger) -> None:
    """More HTTP connections than the server has threads, each of which says that it will send more."""
    host, port = server.http_url.split(":")
    connections = [socket.create_connection((host, int(port)), ANSWERED_WITHIN_S) for _ in range(200)]
    stopped = threading.Event()
    head = f"POST /v2/models/{STREAMING}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"

    def drip() -> None:
        for connection in connections:
            connection.sendall(head.encode())
        while not stopped.wait(0.2):
            for connection in connections:
                connection.sendall(b"{")

    dripping = threading.Thread(target=drip, daemon=True)
    dripping.start()
    with unharmed(server, seed, ledger, "HTTP bodies drop by drop") as case:
        try:
            case.neighbours.mark()
            case.neighbours.wait_for_a_round()
            time.sleep(5)
            # None of them was cut off, or this would show nothing.
            assert dripping.is_alive()
        finally:
            stopped.set()
            dripping.join(ANSWERED_WITHIN_S)
            for connection in connections:
                connection.close()
        case.amount = f"{len(connections)} connections"
