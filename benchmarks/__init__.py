"""Measurements: one command per question, results recorded in docs/benchmarks.md."""
