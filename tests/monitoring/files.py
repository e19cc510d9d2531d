"""What the rules and the dashboard name, as expressions that a Prometheus can be asked."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[2] / "docker" / "monitoring"
RULES = FOLDER / "rules.yml"
DASHBOARD = FOLDER / "grafana" / "dashboards" / "oasr.json"

_VARIABLES = {"$instance": ".*", "$model": ".*", "$__rate_interval": "1m"}
_COMPARISON = re.compile(r"==|!=|>=|<=|>|<")
_MATCHING = re.compile(r"^\s*(?:bool|(?:on|ignoring)\s*\([^)]*\))\s*")
_LABEL_VALUES = re.compile(r"label_values\((\w+), \w+\)")


@dataclass(frozen=True)
class Expression:
    """`where` it stands; `text` can be asked as it is, and has a value on a server that works."""

    where: str
    text: str


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


def recorded() -> set[str]:
    return {rule["record"] for rule in rules() if "record" in rule}


def alerts() -> list[str]:
    return [rule["alert"] for rule in rules() if "alert" in rule]


def dashboard() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return document


def expressions() -> list[Expression]:
    """Everything that the rules and the dashboard ask."""
    return [*_of_rules(), *_of_dashboard()]


def metrics_in(text: str) -> set[str]:
    """Names of metrics and of recorded series in an expression."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(?:by|on|without|ignoring)\s*\([^)]*\)", "", text)
    return {name for name in re.findall(r"[a-zA-Z_:][\w:]*(?!\w*\s*\()", bare) if ":" in name or "_" in name}


def sides(text: str) -> list[str]:
    """Both sides of a comparison, which has a value only where it holds; numbers are left out."""
    depth, quoted, index = 0, False, 0
    while index < len(text):
        char = text[index]
        quoted ^= char == '"'
        depth += (char in "({[") - (char in ")}]")
        found = _COMPARISON.match(text, index) if not quoted and not depth else None
        if found:
            rest = _MATCHING.sub("", text[found.end() :])
            return [side for side in (text[:index].strip(), rest.strip()) if not _is_number(side)]
        index += 1
    return [text]


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[\d.]+", text) is not None


def _of_rules() -> Iterator[Expression]:
    for rule in rules():
        for side in sides(rule["expr"]):
            yield Expression(rule.get("record") or rule["alert"], side)


def _of_dashboard() -> Iterator[Expression]:
    document = dashboard()
    for panel in document["panels"]:
        for target in panel.get("targets", ()):
            yield Expression(f"panel {panel['title']}", _filled(target["expr"]))
    for annotation in document["annotations"]["list"]:
        for side in sides(annotation["expr"]):
            yield Expression(f"annotation {annotation['name']}", _filled(side))
    for variable in document["templating"]["list"]:
        if variable["type"] == "query":
            found = _LABEL_VALUES.fullmatch(variable["definition"])
            assert found, variable
            yield Expression(f"variable {variable['name']}", found[1])


def _filled(text: str) -> str:
    for name, value in _VARIABLES.items():
        text = text.replace(name, value)
    assert "$" not in text, text
    return text
