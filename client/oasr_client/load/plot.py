"""Latencies of a search for the capacity as a picture."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from oasr_client.errors import MissingExtra, UsageError
from oasr_client.load.report import CapacityReport

_PERCENTILES = (50, 95, 99)


def figure_module() -> Any:
    """matplotlib's figures, which need no display. Raises MissingExtra."""
    try:
        return importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise MissingExtra('--plot needs matplotlib: pip install "oasr-triton[plot]"') from error


def draw(report: CapacityReport, path: Path) -> None:
    """Writes a PNG: percentiles by number of streams, and the distribution at the capacity.

    Raises:
        MissingExtra: matplotlib is not installed.
        UsageError: the file cannot be written.
    """
    figure = figure_module().Figure(figsize=(11, 4.5), layout="constrained")
    figure.suptitle(f"oasr bench: {report.lines[0]}", fontsize=10)
    by_streams, distribution = figure.subplots(1, 2)
    _draw_percentiles(by_streams, report)
    _draw_distribution(distribution, report)
    try:
        figure.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None


def _draw_percentiles(axes: Any, report: CapacityReport) -> None:
    # A step that was stopped or refused has latencies of its beginning alone.
    steps = [step for step in report.by_streams if step.run.answers]
    for at in _PERCENTILES:
        points = [step.run.latency.percentile(at) for step in steps]
        axes.plot([step.streams for step in steps], points, marker=".", label=f"p{at}")
    failed = [step for step in steps if not step.verdict.passes]
    points = [step.run.latency.p99 for step in failed]
    axes.plot([step.streams for step in failed], points, "x", color="black", label="does not pass")
    axes.axhline(report.target.chunk_ms, color="grey", linestyle="--", label="length of a chunk")
    if report.streams:
        axes.axvline(report.streams, color="grey", linestyle=":", label=f"capacity: {report.streams}")
    axes.set(xlabel="streams", ylabel="latency of a chunk, ms", yscale="log")
    axes.legend(fontsize=8)


def _draw_distribution(axes: Any, report: CapacityReport) -> None:
    step = report.at_capacity or (report.by_streams[0] if report.steps else None)
    if step is None or not step.run.answers:
        axes.set_axis_off()
        return
    latencies = np.sort(step.run.latency.milliseconds)
    axes.hist(latencies, bins=40, density=False, color="lightgrey")
    axes.set(xlabel="latency of a chunk, ms", ylabel="chunks", title=f"{step.streams} streams")
    share = axes.twinx()
    share.plot(latencies, np.arange(1, len(latencies) + 1) / len(latencies) * 100)
    share.set(ylabel="chunks answered by then, %", ylim=(0, 101))
    axes.axvline(report.target.chunk_ms, color="grey", linestyle="--")
