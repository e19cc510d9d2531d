"""Checks compose files against the published schema: `python compose_schema.py SCHEMA FILE...`."""

import json
import sys
from pathlib import Path

import yaml
from jsonschema import Draft7Validator


def main() -> int:
    validator = Draft7Validator(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    faults = 0
    for name in sys.argv[2:]:
        for error in validator.iter_errors(yaml.safe_load(Path(name).read_text(encoding="utf-8"))):
            print(f"{name}: {'.'.join(map(str, error.path))}: {error.message}")
            faults += 1
    print(f"{len(sys.argv) - 2} compose files, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
