"""A place where servers come and go."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from oasr_backend.serve import RunningServer, running_server
from oasr_backend.utils.paths import demo_checkpoint_dir


class Host:
    """Servers on the same ports, one after the other; their log goes to a file in the folder."""

    def __init__(self, folder: Path) -> None:
        self._log_path = folder / "server.log"
        self._ports: dict[str, int] = {}
        self._stack = ExitStack()
        self.server: RunningServer

    def start(self, exit_timeout_s: int = 1, **others: Any) -> None:
        """Starts the next one, of the demo checkpoint; `others` as `running_server` takes them."""
        context = running_server(
            demo_checkpoint_dir(),
            environment={"OASR_DTYPE": "float32"},
            log_path=self._log_path,
            ready_timeout_s=240,
            exit_timeout_s=exit_timeout_s,
            # gRPC channels of one process share what they know of an address: one that was refused just now.
            self_test=False,
            **self._ports,
            **others,
        )
        self.server = self._stack.enter_context(context)
        urls = {"http": self.server.http_url, "grpc": self.server.grpc_url, "metrics": self.server.metrics_url}
        self._ports = {f"{kind}_port": int(url.rpartition(":")[2]) for kind, url in urls.items()}

    def url(self, protocol: str) -> str:
        """HOST:PORT."""
        return self.server.grpc_url if protocol == "grpc" else self.server.http_url

    def stop(self) -> None:
        """Ends all that were started."""
        self._stack.close()
