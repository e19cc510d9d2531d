"""The files of docker/monitoring are what Prometheus and Grafana take, and say what the documentation says."""

import re
import shutil
import subprocess
from itertools import combinations, pairwise
from os import environ
from pathlib import Path

import pytest
import yaml

from tests.monitoring.files import (
    FOLDER,
    RULES,
    alerts,
    dashboard,
    expressions,
    metrics_in,
    recorded,
    rules,
    sides,
)

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "monitoring.md"


def test_comparisons_come_apart_and_nothing_else_does() -> None:
    assert sides('up{job="a>b"} == 0') == ['up{job="a>b"}']
    assert sides("a:b > on (instance, model) c_d") == ["a:b", "c_d"]
    assert sides("(count(x_y) or z_z * 0) < 1") == ["(count(x_y) or z_z * 0)"]
    assert sides("rate(x_y[5m]) / 2") == ["rate(x_y[5m]) / 2"]


def test_names_are_found_in_expressions() -> None:
    found = metrics_in('histogram_quantile(0.5, sum by (le, a_b) (rate(x_bucket{c_d="e_f"}[5m]))) / on (g_h) y:z')
    assert found == {"x_bucket", "y:z"}


def test_every_recorded_series_that_is_used_is_recorded() -> None:
    used = {name for expression in expressions() for name in metrics_in(expression.text) if ":" in name}
    assert used <= recorded()
    assert len(rules()) == len(recorded()) + len(set(alerts()))


def test_every_alert_has_severity_and_summary_and_stands_in_the_documentation() -> None:
    text = DOCUMENTATION.read_text(encoding="utf-8")
    for rule in rules():
        if "alert" in rule:
            assert rule["labels"]["severity"] in ("critical", "warning", "info")
            assert rule["annotations"]["summary"]
    assert re.findall(r"^\| `(Oasr\w+)`", text, re.MULTILINE) == alerts()


def test_the_scrape_configuration_names_rules_that_are_there() -> None:
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    assert [FOLDER / name for name in config["rule_files"]] == [RULES]
    (job,) = config["scrape_configs"]
    # The rules and the dashboard choose by it.
    assert job["job_name"] == "oasr"


def test_the_dashboard_is_one_that_grafana_can_load() -> None:
    document = dashboard()
    panels = document["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert [panel["title"] for panel in panels if panel["type"] == "row"] == [
        "Now",
        "Traffic",
        "Latency",
        "Engine",
        "Capacity",
        "Errors",
    ]
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] >= 0 and place["x"] + place["w"] <= 24
        if panel["type"] == "row":
            continue
        assert panel["description"].endswith(".")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        identifiers = [target["refId"] for target in panel["targets"]]
        assert identifiers and len(set(identifiers)) == len(identifiers)
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])


def test_no_panel_lies_on_another() -> None:
    for one, other in combinations([panel["gridPos"] for panel in dashboard()["panels"]], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above
    tops = [panel["gridPos"]["y"] for panel in dashboard()["panels"]]
    assert all(upper <= lower for upper, lower in pairwise(tops))


def test_grafana_is_provisioned_with_the_source_that_the_dashboard_takes() -> None:
    provisioning = FOLDER / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    (variable,) = [one for one in dashboard()["templating"]["list"] if one["type"] == "datasource"]
    assert source["type"] == variable["query"] == "prometheus"
    assert source["uid"] == variable["current"]["value"]
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "oasr.yml").read_text())["providers"]
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards"


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool", path=f"{environ.get('PROMETHEUS_PROGRAMS', '')}:{environ['PATH']}")
    if found is None:
        pytest.skip("no promtool here; `make test-monitoring` fetches one")
    return str(Path(found).resolve())


@pytest.mark.parametrize(
    "arguments",
    [("check", "config", "prometheus.yml"), ("check", "rules", "rules.yml"), ("test", "rules", "rules.test.yml")],
)
def test_promtool_accepts_the_files(promtool: str, arguments: tuple[str, ...]) -> None:
    done = subprocess.run([promtool, *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
