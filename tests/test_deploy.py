"""deploy/, the Dockerfile and the documents agree with the proxy."""

import configparser
import re
from pathlib import Path

import pytest
import yaml

from proxy.config import ENV_ALIASES, ENV_PREFIX, Settings, load, names_of_variables

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
DOCKERFILE = ROOT / "Dockerfile"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
KUBERNETES = sorted(DEPLOY.glob("kubernetes/*/*.yaml"))
USER = 10001


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    import os

    for name in list(os.environ):
        if name.upper().startswith(ENV_PREFIX) or name in ENV_ALIASES:
            monkeypatch.delenv(name)


def texts():
    documents = [path for path in DOCUMENTS if path.parent.name != "decisions"]  # those tell of mistakes, too
    files = [DOCKERFILE, *documents, *(path for path in DEPLOY.rglob("*") if path.is_file())]
    return {str(path.relative_to(ROOT)): path.read_text() for path in files}


def test_every_variable_that_is_named_anywhere_is_a_setting():
    wrong: list[str] = []
    seen = 0
    for name, text in texts().items():
        for variable in sorted(set(re.findall(rf"{ENV_PREFIX}[A-Za-z0-9_]*[A-Za-z0-9]", text))):
            seen += 1
            mistakes: list[str] = []
            names_of_variables({variable: "x"}, ENV_PREFIX, Settings, mistakes)
            wrong += [f"{name}: {mistake}" for mistake in mistakes]
    assert wrong == []
    assert seen > 10


def yaml_in_documents():
    return [
        pytest.param(block, id=f"{path.stem}-{number}")
        for path in DOCUMENTS
        for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL))
    ]


@pytest.mark.parametrize("text", yaml_in_documents())
def test_every_yaml_in_the_documents_is_a_configuration(text, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    assert load(file) != Settings()


@pytest.mark.parametrize("file", sorted(DEPLOY.rglob("config.yaml")), ids=lambda path: path.parent.name)
def test_every_configuration_in_deploy_is_one(file):
    assert load(file) != Settings()


def manifests():
    """By folder and kind."""
    return {
        (path.parent.name, found["kind"]): found
        for path in KUBERNETES
        for found in yaml.safe_load_all(path.read_text())
        if "kind" in found
    }


def containers(deployment):
    pod = deployment["spec"]["template"]["spec"]
    return [*pod.get("initContainers", []), *pod["containers"]]


@pytest.mark.parametrize("folder", ["standalone", "sidecar"])
def test_pods_are_locked_as_the_image_is(folder):
    deployment = manifests()[folder, "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    assert f"USER {USER}:{USER}" in DOCKERFILE.read_text()
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["fsGroup"]) == (USER, USER)
    for container in containers(deployment):
        locked = container["securityContext"]
        assert locked["readOnlyRootFilesystem"] is True
        assert locked["allowPrivilegeEscalation"] is False
        assert locked["capabilities"] == {"drop": ["ALL"]}
    proxy = next(container for container in containers(deployment) if container["name"] == "context-proxy")
    assert "/data" in [mount["mountPath"] for mount in proxy["volumeMounts"]]
    volumes = {volume["name"] for volume in pod["volumes"]}
    mounted = {mount["name"] for container in containers(deployment) for mount in container["volumeMounts"]}
    assert volumes == mounted


def test_all_that_belongs_to_the_service_selects_its_pods():
    found = manifests()
    labels = found["standalone", "Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert found["standalone", "Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert found["standalone", "Service"]["spec"]["selector"] == labels
    assert found["standalone", "PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert found["standalone", "NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    target = found["standalone", "HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", found["standalone", "Deployment"]["metadata"]["name"])
    listed = yaml.safe_load((DEPLOY / "kubernetes" / "standalone" / "kustomization.yaml").read_text())
    files = {path.name for path in (DEPLOY / "kubernetes" / "standalone").iterdir()} - {"kustomization.yaml"}
    assert all((DEPLOY / "kubernetes" / "standalone" / name).exists() for name in listed["resources"])
    own = {name for name in listed["resources"] if not name.startswith("../")}
    assert own | {name for made in listed["configMapGenerator"] for name in made["files"]} == files


def test_replicas_reach_the_state_server_and_nothing_else_may():
    found = manifests()
    service, deployment = found["valkey", "Service"], found["valkey", "Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"] == labels
    url = load(DEPLOY / "kubernetes" / "standalone" / "config.yaml").state.url
    assert url.get_secret_value() == f"redis://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    policy = found["valkey", "NetworkPolicy"]["spec"]
    proxies = found["standalone", "Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"] == labels
    assert policy["ingress"][0]["from"] == [{"podSelector": {"matchLabels": proxies}}]
    assert "egress" not in policy
    way_out = found["standalone", "NetworkPolicy"]["spec"]["egress"]
    assert {"podSelector": {"matchLabels": labels}} in [to for rule in way_out for to in rule["to"]]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_pod_monitor_finds_the_port_of_the_pods():
    found = manifests()
    monitor, pod = found["podmonitor", "PodMonitor"]["spec"], found["standalone", "Deployment"]["spec"]["template"]
    assert monitor["selector"]["matchLabels"] == pod["metadata"]["labels"]
    ports = {port["name"] for container in containers({"spec": {"template": pod}}) for port in container["ports"]}
    assert {endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]} <= ports


def test_the_patch_puts_the_same_sidecar_into_a_pod_as_the_manifest():
    text = (DEPLOY / "kubernetes" / "sidecar" / "patch.yaml").read_text()
    patch = yaml.safe_load(re.sub("CONTAINER$", "agent", text, flags=re.MULTILINE))["spec"]["template"]["spec"]
    whole = manifests()["sidecar", "Deployment"]["spec"]["template"]["spec"]
    (mine,), (theirs,) = patch["initContainers"], whole["initContainers"]
    assert {name: mine[name] for name in ("env", "resources", "restartPolicy")} == {
        name: theirs[name] for name in ("env", "resources", "restartPolicy")
    }
    (agent,), (whole_agent,) = patch["containers"], whole["containers"]
    assert agent["name"] == "agent"
    assert agent["volumeMounts"] == whole_agent["volumeMounts"]
    assert agent["env"][0] == whole_agent["env"][0]
    volumes = {volume["name"] for volume in patch["volumes"]}
    assert {mount["name"] for container in (mine, agent) for mount in container["volumeMounts"]} == volumes


def test_what_the_monitoring_of_compose_mounts_is_there():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    watching = {name: service for name, service in services.items() if service.get("profiles") == ["monitoring"]}
    assert set(watching) == {"prometheus", "grafana"}
    mounts = [mount for service in watching.values() for mount in service["volumes"] if mount.startswith("./")]
    assert len(mounts) == 4
    assert all((DEPLOY / mount.split(":")[0]).exists() for mount in mounts)
    (job,) = yaml.safe_load((DEPLOY / "monitoring" / "prometheus.yml").read_text())["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"context-proxy:{Settings().server.port}"]}]


def test_no_pod_is_stopped_before_running_responses_may_end():
    grace = Settings().server.shutdown_grace_seconds
    pod = manifests()["standalone", "Deployment"]["spec"]["template"]["spec"]
    pause = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > grace + pause
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert int(compose["services"]["context-proxy"]["stop_grace_period"].removesuffix("s")) > grace
    for name in ("context-proxy.service", "user/context-proxy.service"):
        unit = configparser.RawConfigParser(strict=False)
        unit.optionxform = str
        unit.read(DEPLOY / "systemd" / name)
        assert int(unit["Service"]["TimeoutStopSec"]) > grace


def test_agents_find_artifacts_where_notices_say():
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    path = compose["context-proxy"]["environment"]["CONTEXT_PROXY_ARTIFACTS__AGENT_PATH"]
    assert f"artifacts:{path}:ro" in compose["agent"]["volumes"]
    assert "artifacts:/data/tool-output" in compose["context-proxy"]["volumes"]
    assert re.search(
        r"install -d .* /data/tool-output$", DOCKERFILE.read_text(), re.MULTILINE
    )  # a volume takes its owner
    assert compose["agent"]["user"] == f"{USER}:{USER}"
    proxy, agent = containers(manifests()["sidecar", "Deployment"])
    variables = {variable["name"]: variable.get("value") for variable in proxy["env"]}
    seen = next(mount["mountPath"] for mount in agent["volumeMounts"] if mount["name"] == "artifacts")
    kept = next(mount["mountPath"] for mount in proxy["volumeMounts"] if mount["name"] == "artifacts")
    assert variables["CONTEXT_PROXY_ARTIFACTS__AGENT_PATH"] == seen
    assert variables["CONTEXT_PROXY_ARTIFACTS__FOLDER"] == kept


def test_every_port_is_the_one_that_the_image_opens():
    port = Settings().server.port
    assert f"EXPOSE {port}" in DOCKERFILE.read_text()
    for name, text in texts().items():
        if name.startswith("deploy") and not name.endswith((".json", ".py")):
            assert set(re.findall(r"(?:port: |:)(8\d{3})\b", text)) <= {str(port)}, name


def test_the_image_is_built_from_what_docker_is_given():
    given = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        word
        for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE.read_text(), re.MULTILINE)
        for word in line.split()
    }
    assert copied == given
    assert all((ROOT / name).exists() for name in given)
