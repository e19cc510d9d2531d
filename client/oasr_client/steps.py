"""Work with a server as steps: generators that know nothing of how requests are sent.

They yield what is to be sent or how long to wait, take the answer or the error, and return the outcome. `drive` runs
them over blocking calls, `drive_async` over asyncio, so that every rule is written once.
"""

import json
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from oasr_client import errors, transport
from oasr_client.options import Parameter

Outcome = TypeVar("Outcome")
Outputs = dict[str, transport.Array]


@dataclass(frozen=True)
class Send:
    """A request to be sent, as `Transport.infer` takes it; its outputs, or an `OasrError`, are waited for."""

    model: str
    inputs: Mapping[str, transport.Array]
    outputs: tuple[str, ...]
    step: transport.SequenceStep | None = None
    parameters: Mapping[str, Parameter] | None = None
    timeout_s: float | None = None


@dataclass(frozen=True)
class Pause:
    """A wait before the next attempt."""

    seconds: float


class Requester(Protocol):
    """Sends requests over asyncio, as `AsyncTransport` does."""

    async def infer(
        self,
        model: str,
        inputs: Mapping[str, transport.Array],
        outputs: Sequence[str],
        *,
        sequence: transport.SequenceStep | None = None,
        parameters: Mapping[str, Parameter] | None = None,
        timeout_s: float | None = None,
    ) -> Outputs:
        """As `AsyncTransport.infer`."""
        ...


Steps = Generator[Send | Pause, Outputs | None, Outcome]


def drive(
    steps: Steps[Outcome],
    via: transport.Transport,
    pause: Callable[[float], None],
) -> Outcome:
    """Runs `steps` to its end over blocking calls; `pause` may raise an `OasrError`, too."""
    reply: Outputs | None = None
    error: errors.OasrError | None = None
    try:
        while True:
            action = steps.throw(error) if error is not None else steps.send(reply)
            reply = error = None
            try:
                if isinstance(action, Send):
                    reply = via.infer(action.model, action.inputs, action.outputs, **_arguments(action))
                else:
                    pause(action.seconds)
            except errors.OasrError as raised:
                error = raised
    except StopIteration as stop:
        outcome: Outcome = stop.value
        return outcome
    finally:
        # An interrupt leaves the steps in the middle; they take note of it.
        steps.close()


async def drive_async(
    steps: Steps[Outcome],
    via: Requester,
    pause: Callable[[float], Awaitable[None]],
) -> Outcome:
    """As `drive`, over coroutines."""
    reply: Outputs | None = None
    error: errors.OasrError | None = None
    try:
        while True:
            action = steps.throw(error) if error is not None else steps.send(reply)
            reply = error = None
            try:
                if isinstance(action, Send):
                    reply = await via.infer(action.model, action.inputs, action.outputs, **_arguments(action))
                else:
                    await pause(action.seconds)
            except errors.OasrError as raised:
                error = raised
    except StopIteration as stop:
        outcome: Outcome = stop.value
        return outcome
    finally:
        steps.close()


def outputs_wanted(want_result: bool) -> tuple[str, ...]:
    """The tensors to ask for."""
    return ("TRANSCRIPTS", "RESULT") if want_result else ("TRANSCRIPTS",)


def result_of(outputs: Mapping[str, transport.Array]) -> dict[str, Any] | None:
    """The parsed RESULT document, None where it was not asked for.

    Raises:
        ServerError: it is not a JSON object.
    """
    if "RESULT" not in outputs:
        return None
    try:
        parsed = json.loads(outputs["RESULT"].reshape(-1)[0])
    except (ValueError, IndexError) as error:
        raise errors.ServerError(f"the RESULT of the server is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise errors.ServerError("the RESULT of the server is not a JSON object")
    return parsed


def _arguments(action: Send) -> dict[str, Any]:
    return {"sequence": action.step, "parameters": action.parameters, "timeout_s": action.timeout_s}
