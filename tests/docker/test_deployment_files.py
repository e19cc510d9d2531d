"""The files of docker/ agree with each other and with the code; `make lint-docker` checks them against schemas."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from oasr_backend.config import EngineConfig
from oasr_backend.engine.metrics import FAMILIES
from oasr_backend.server.options import ServeOptions
from oasr_backend.server.running import _UNLOAD_S
from oasr_backend.triton.overrides import SCOPES, field_types
from oasr_backend.triton.settings import AdapterSettings

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
KUBERNETES = DOCKER / "scale" / "kubernetes"
DOCKERFILES = ("Dockerfile", "Dockerfile.cpu")
COMPOSES = ("compose.yaml", "scale/compose.yaml")
SERVERS = {"compose.yaml": ("cpu", "gpu"), "scale/compose.yaml": ("server-1", "server-2")}


def compose(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DOCKER / name).read_text(encoding="utf-8"))
    return document


def manifests() -> dict[str, dict[str, Any]]:
    """Kubernetes objects by kind and name."""
    found = {}
    for path in sorted(KUBERNETES.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if document.get("metadata", {}).get("name"):
                found[f"{document['kind']}/{document['metadata']['name']}"] = document
    return found


def instructions(name: str) -> list[tuple[str, str]]:
    """Instructions and arguments of a Dockerfile, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", (DOCKER / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines if line.strip()]


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


# images


@pytest.mark.parametrize("name", DOCKERFILES)
def test_an_image_runs_as_a_user_under_an_init_with_a_canary(name: str) -> None:
    last = dict(instructions(name))
    assert last["USER"] == "10001:10001"
    assert last["ENTRYPOINT"] == '["/usr/bin/tini", "--", "oasr"]'
    assert last["HEALTHCHECK"].endswith('CMD ["oasr-healthcheck"]')
    assert last["STOPSIGNAL"] == "SIGTERM"
    assert last["VOLUME"] == "/checkpoints"
    assert last["EXPOSE"].split() == ["8000", "8001", "8002"]
    assert "oasr canary" in (DOCKER / "healthcheck").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DOCKERFILES)
def test_what_an_image_copies_is_there_and_in_the_context(name: str) -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"}
    copied = [
        source
        for instruction, arguments in instructions(name)
        if instruction == "COPY" and "--from" not in arguments
        for source in [word for word in shlex.split(arguments) if not word.startswith("--")][:-1]
    ]
    assert copied
    assert all((ROOT / source).exists() for source in copied)
    assert set(copied) <= kept


@pytest.mark.parametrize("name", DOCKERFILES)
def test_an_image_has_all_that_the_wheel_is_made_of(name: str) -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    match = re.search(r"^\[tool\.hatch\.build\.targets\.wheel\.force-include\]\n((?:\".*\n)+)", text, re.MULTILINE)
    assert match
    packages = re.findall(r'"([^"]+)"', _table_entry(text, "packages"))
    parts = [*packages, *re.findall(r'^"([^"]+)" =', match[1], re.MULTILINE)]
    assert {"oasr_backend", "client/oasr_client", "model_repository", "assets"} <= set(parts)
    copied = [Path(arguments.split()[0]) for instruction, arguments in instructions(name) if instruction == "COPY"]
    assert not [part for part in parts if not any(Path(part).is_relative_to(source) for source in copied)]


def test_the_gpu_image_is_based_on_a_release_that_may_be_used() -> None:
    match = re.search(r"tritonserver:(\d+\.\d+)-py3", (DOCKER / "Dockerfile").read_text(encoding="utf-8"))
    assert match
    assert Version(match[1]) >= Version("25.04")


def test_no_image_is_without_a_version() -> None:
    images = [arguments.split("=")[1] for name in DOCKERFILES for _, arguments in instructions(name)[:1]]
    for name in COMPOSES:
        images += [service["image"] for service in compose(name)["services"].values()]
    for image in images:
        tag = re.sub(r"^\$\{\w+:-(.*)\}$", r"\1", image).rpartition(":")[2]
        assert re.search(r"\d+\.\d+", tag), image


def test_the_pins_are_what_the_package_asks_for() -> None:
    pins = {}
    for name in ("requirements.txt", "requirements-triton.txt"):
        for line in (DOCKER / name).read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                package, version = line.split("==")
                assert pins.setdefault(package.lower().replace("_", "-"), version) == version
    for name in DOCKERFILES:
        (torch,) = [a.split("=", 1)[1] for i, a in instructions(name) if i == "ARG" and a.startswith("TORCH_SPEC")]
        package, pins["torch"] = torch.split("==")
        assert package == "torch"
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    wanted = re.findall(r'"([^"]+)"', _table_entry(text, "dependencies"))
    for extra in ("engine", "server", "huggingface"):
        wanted += re.findall(r'"([^"]+)"', _table_entry(text, extra))
    missing = []
    for requirement in map(Requirement, wanted):
        package = requirement.name.lower().replace("_", "-")
        if package != "oasr-triton" and not requirement.specifier.contains(pins.get(package, "0")):
            missing.append(f"{requirement} (pinned: {pins.get(package)})")
    assert not missing, "write docker/requirements*.txt again"


def _table_entry(text: str, name: str) -> str:
    """The list behind `name = [` in pyproject.toml, which Python 3.10 cannot parse without a package."""
    match = re.search(rf"^{name} = \[\n?(.*?)\]$", text, re.MULTILINE | re.DOTALL)
    assert match, name
    return match[1]


# compose


@pytest.mark.parametrize("name", COMPOSES)
def test_every_service_is_confined(name: str) -> None:
    for service in compose(name)["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["restart"] == "unless-stopped"
        assert service["healthcheck"]["test"][0] == "CMD"
        assert service["logging"]["options"]["max-size"]
        for port in service.get("ports", []):
            assert port.startswith("${BIND_ADDRESS:-127.0.0.1}:")


@pytest.mark.parametrize("name", COMPOSES)
def test_a_server_has_room_and_time(name: str) -> None:
    for service in (compose(name)["services"][server] for server in SERVERS[name]):
        assert service["shm_size"] == "${SHM_SIZE:-1gb}"
        assert seconds(service["stop_grace_period"]) > ServeOptions().exit_timeout_s + _UNLOAD_S
        assert service["healthcheck"]["test"] == ["CMD", "oasr-healthcheck"]
        assert service["environment"] == {"GRAFANA_PASSWORD": ""}
        (checkpoints,) = service["volumes"]
        assert checkpoints["target"] == "/checkpoints"
        assert checkpoints["read_only"] is True


def test_the_profiles_are_those_that_are_documented() -> None:
    services = compose("compose.yaml")["services"]
    profiles = {name: service["profiles"] for name, service in services.items()}
    assert profiles == {"cpu": ["cpu"], "gpu": ["gpu"], "prometheus": ["monitoring"], "grafana": ["monitoring"]}


def test_dockerfile_and_compose_check_health_alike() -> None:
    for server, dockerfile in (("cpu", "Dockerfile.cpu"), ("gpu", "Dockerfile")):
        check = compose("compose.yaml")["services"][server]["healthcheck"]
        flags = dict(re.findall(r"--([\w-]+)=(\S+)", dict(instructions(dockerfile))["HEALTHCHECK"]))
        assert flags == {
            "interval": check["interval"],
            "timeout": check["timeout"],
            "start-period": check["start_period"],
            "retries": str(check["retries"]),
        }


@pytest.mark.parametrize("name", COMPOSES)
def test_what_is_mounted_and_built_is_there(name: str) -> None:
    folder = (DOCKER / name).parent
    for service in compose(name)["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0] if isinstance(volume, str) else ""
            if source.startswith("."):
                assert (folder / source).exists(), source
        if "build" in service:
            context = folder / service["build"]["context"]
            assert (context / service["build"]["dockerfile"]).is_file()


def test_every_variable_of_compose_is_explained() -> None:
    explained = set(re.findall(r"^#([A-Z_]+)=", (DOCKER / ".env.example").read_text(encoding="utf-8"), re.MULTILINE))
    for name in COMPOSES:
        used = set(re.findall(r"\$\{(\w+)", (DOCKER / name).read_text(encoding="utf-8")))
        assert used <= explained


def test_every_setting_that_is_named_exists() -> None:
    known = set(field_types(EngineConfig)) | set(field_types(AdapterSettings))
    for path in DOCKER.rglob("*"):
        if path.is_file() and path.suffix != ".py" and path.name != ".env.example" and "checkpoints" not in path.parts:
            for name in re.findall(r"\bOASR_([A-Z0-9_]+)\b", path.read_text(encoding="utf-8")):
                scope, _, rest = name.lower().partition("_")
                assert name.lower() in known or (scope in SCOPES and rest in known), f"{path.name}: OASR_{name}"


# kubernetes


def test_a_pod_drains_for_longer_than_its_server() -> None:
    pod = manifests()["Deployment/oasr"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    exit_timeout = int(container["args"][container["args"].index("--exit-timeout") + 1])
    pre_stop = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > pre_stop + exit_timeout + _UNLOAD_S


def test_a_pod_is_confined_and_probed_by_inference() -> None:
    pod = manifests()["Deployment/oasr"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsUser"] == 10001
    # Variables named after the Service would be settings that do not exist, and stop the start.
    assert pod["enableServiceLinks"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    for probe in ("startupProbe", "livenessProbe"):
        assert container[probe]["exec"]["command"][:2] == ["oasr", "canary"]
        asked_s = float(container[probe]["exec"]["command"][3])
        assert container[probe]["timeoutSeconds"] > asked_s
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted == {"/checkpoints", "/tmp", "/dev/shm"}
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def test_every_object_selects_the_pods() -> None:
    objects = manifests()
    labels = objects["Deployment/oasr"]["spec"]["template"]["metadata"]["labels"]
    assert objects["Service/oasr"]["spec"]["selector"] == labels
    assert objects["Service/oasr-pods"]["spec"]["selector"] == labels
    assert objects["PodDisruptionBudget/oasr"]["spec"]["selector"]["matchLabels"] == labels
    assert objects["NetworkPolicy/oasr"]["spec"]["podSelector"]["matchLabels"] == labels
    assert objects["HorizontalPodAutoscaler/oasr"]["spec"]["scaleTargetRef"]["name"] == "oasr"
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    others = {"kustomization.yaml", "adapter-rules.yaml"}
    assert sorted(listed) == sorted(path.name for path in KUBERNETES.glob("*.yaml") if path.name not in others)


def test_the_autoscaler_asks_for_what_the_adapter_and_the_models_give() -> None:
    metrics = manifests()["HorizontalPodAutoscaler/oasr"]["spec"]["metrics"]
    asked = {metric["pods"]["metric"]["name"] for metric in metrics}
    rules = yaml.safe_load((KUBERNETES / "adapter-rules.yaml").read_text(encoding="utf-8"))["rules"]["custom"]
    assert asked == {rule["name"]["as"] for rule in rules} == {"oasr_engine_running", "oasr_engine_waiting"}
    for rule in rules:
        assert rule["seriesQuery"].startswith(rule["name"]["as"] + "{")
    assert {name.removeprefix("oasr_") for name in asked} <= FAMILIES.keys()
