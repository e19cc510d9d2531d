"""Ports: free ones to pick, and a clear word about busy ones."""

import errno
import random
import socket
from collections.abc import Iterable

from oasr_backend.server.errors import LaunchError

# Below the range from which Linux takes the local ports of outgoing connections.
_PICKED = range(20000, 32000)


def resolve_host(host: str) -> str:
    """The IPv4 address to bind for a host name; tritonserver itself understands nothing but such an address."""
    try:
        return socket.gethostbyname(host)
    except OSError:
        raise LaunchError(
            f"host {host} has no IPv4 address; give --host an IPv4 address or a name that has one"
        ) from None


def settle_ports(wanted: Iterable[tuple[str, str, int]]) -> list[int]:
    """Returns one usable port per (flag, address, port), picking a free one for 0.

    Raises LaunchError naming port and flag when a port is busy, refused or asked for twice.
    """
    settled: list[int] = []
    for flag, address, port in wanted:
        if port == 0:
            settled.append(_pick(address, settled))
            continue
        if port in settled:
            raise LaunchError(f"port {port} is asked for twice; give {flag} another")
        problem = _bind_problem(address, port)
        if problem == errno.EADDRINUSE:
            raise LaunchError(
                f"port {port} on {address} is in use by another process; give {flag} another, or 0 for any"
            )
        if problem == errno.EACCES:
            raise LaunchError(f"port {port} needs privileges this process lacks; give {flag} a port above 1023")
        if problem:
            raise LaunchError(
                f"cannot listen on {address} port {port} ({errno.errorcode.get(problem, problem)}); check --host"
            )
        settled.append(port)
    return settled


def _pick(address: str, taken: list[int]) -> int:
    problem = 0
    for port in random.sample(_PICKED, 50):
        if port in taken:
            continue
        problem = _bind_problem(address, port)
        if not problem:
            return port
    raise LaunchError(
        f"no free port found on {address} ({errno.errorcode.get(problem, problem)}); check --host or name ports"
    )


def _bind_problem(address: str, port: int) -> int:
    """0 when the port can be listened on, else the errno."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            return error.errno or errno.EINVAL
    return 0


def url(address: str, port: int) -> str:
    """`host:port`, as tritonclient takes it, at which a client on this machine reaches a server bound to `address`."""
    return f"{'127.0.0.1' if address == '0.0.0.0' else address}:{port}"
