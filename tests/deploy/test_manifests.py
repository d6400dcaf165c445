"""Each process of the Procfile is in the compose file, in the chart and among the units, and has time to end."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.tooling.release import read_version
from mailhub.management import unit_files
from mailhub.management.commands.up import read_procfile
from vendors.adapters.base import MAKING, WIND_UP
from vendors.described.schema import RequestKeys

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "mailhub"
PROCESSES = set(read_procfile())
PLACE = unit_files.UnitPlace("/opt/mailhub/bin/mailhub")
HELM, ANALYZE, VALIDATE = (shutil.which(name) for name in ("helm", "systemd-analyze", "kubernetes-validate"))
WITH_INGRESS = ("--set", "ingress.enabled=true")


def read_compose() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return services


def read_values() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return values


def find_longest_call() -> float:
    """The longest time limit of a description, with the time for its files and the end."""
    (longest,) = (bound.le for bound in RequestKeys.model_fields["timeout"].metadata if hasattr(bound, "le"))
    return longest + MAKING + WIND_UP


def test_compose_has_each_process_of_the_procfile_by_its_name() -> None:
    ours = {name: one for name, one in read_compose().items() if str(one.get("image")).startswith("mailhub:")}
    roles = {name: one["environment"].get("MAILHUB_ROLE") for name, one in ours.items()}
    assert {name for name, role in roles.items() if role} == PROCESSES
    assert all(role in (name, None) for name, role in roles.items())
    assert set(ours) - PROCESSES == {"migrate", "sandbox"}
    for name, one in ours.items():
        assert (one["read_only"], one["cap_drop"], one["init"]) == (True, ["ALL"], True), name
        assert "entrypoint" not in one and ("command" in one) == (name not in PROCESSES), name


def test_compose_keeps_no_secret_and_asks_for_each() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    assert re.findall(r"\$\{((?:\w*PASSWORD|SECRET_KEY))(:\?)", text) != []
    assert re.findall(r"\$\{(?:\w*PASSWORD|SECRET_KEY)(?!:\?)", text) == []


def test_the_chart_has_each_process_of_the_procfile_by_its_name() -> None:
    assert set(read_values()["processes"]) == PROCESSES


def test_there_is_a_unit_for_each_process_and_the_target_wants_them_all() -> None:
    units = unit_files.make_units(read_procfile(), PLACE)
    assert set(unit_files.ABOUT) == PROCESSES
    commands = {found for text in units.values() for found in re.findall(r"mailhub run (\S+)", text)}
    assert commands == PROCESSES
    wanted = units[unit_files.TARGET].partition("Wants=")[2].split("\n")[0].split()
    assert {re.sub(r"@\d+", "@", one) for one in wanted} == {name for name in units if "mailhub run" in units[name]}
    assert sum("@" in one for one in wanted) == PLACE.senders
    for name, text in units.items():
        if "mailhub run" in text:
            assert "KillMode=mixed" in text and "Restart=always" in text and "NoNewPrivileges=yes" in text, name


def test_a_home_elsewhere_may_be_written() -> None:
    elsewhere = unit_files.make_units({"web": ""}, unit_files.UnitPlace("mailhub", home="/srv/mail/hub"))
    assert "ReadWritePaths=/srv/mail/hub\n" in elsewhere["mailhub-web.service"]
    assert "d /srv/mail/hub 0700 mailhub mailhub -\n" in elsewhere["mailhub.tmpfiles.conf"]
    usual = unit_files.make_units({"web": ""}, PLACE)
    assert "StateDirectory=mailhub\n" in usual["mailhub-web.service"]


def test_everywhere_a_sender_has_time_for_its_longest_call() -> None:
    longest = find_longest_call()
    assert longest > 300
    assert longest < unit_files.STOP_SECONDS
    assert read_values()["terminationGracePeriodSeconds"] > longest
    graces = {one["stop_grace_period"] for one in read_compose().values() if "mailhub:" in one["image"]}
    assert {float(grace.removesuffix("s")) > longest for grace in graces} == {True}
    for file in ("Containerfile", "helm/mailhub/values.yaml"):
        assert f"takes {longest:g} seconds" in (DEPLOY / file).read_text()


def test_image_and_chart_have_the_version_of_the_package() -> None:
    version = read_version()
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert {one["image"] for one in read_compose().values() if "mailhub:" in one["image"]} == {f"mailhub:{version}"}
    assert f"-t mailhub:{version} " in (DEPLOY / "Containerfile").read_text()


def test_the_image_is_built_of_what_it_is_given() -> None:
    """What pyproject.toml packs and what the Containerfile copies is not left out of the context."""
    given = set(re.findall(r"^!(\S+)", (DEPLOY / "Containerfile.dockerignore").read_text(), re.MULTILINE))
    project = (DEPLOY.parent / "pyproject.toml").read_text()
    packages, *_ = re.findall(r"^packages = \[(.*)\]", project, re.MULTILINE)
    needed = {*re.findall(r'"(\w+)"', packages), "Procfile", "README.md", "LICENSE", "hatch_build.py", "pyproject.toml"}
    assert needed <= given
    assert {"requirements*.in", "requirements*.txt"} <= given


@pytest.mark.slow("programs")
@pytest.mark.skipif(ANALYZE is None, reason="no systemd-analyze on this machine")
def test_systemd_finds_nothing_wrong_in_the_units(tmp_path: Path) -> None:
    program = tmp_path / "mailhub"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    place = unit_files.UnitPlace(str(program))
    for name, text in unit_files.make_units(read_procfile(), place).items():
        (tmp_path / name).write_text(text)
    units = [str(path) for path in tmp_path.iterdir() if path.suffix in (".service", ".target")]
    ran = subprocess.run([str(ANALYZE), "verify", *units], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    web = tmp_path / "mailhub-web.service"
    web.write_text(web.read_text().replace("KillMode=mixed", "KillMode=some"))
    ran = subprocess.run([str(ANALYZE), "verify", str(web)], capture_output=True, text=True, check=False)
    assert "kill mode" in ran.stderr, "a wrong word would be seen"


@pytest.mark.slow("programs")
@pytest.mark.skipif(HELM is None, reason="no helm on this machine")
def test_the_chart_makes_what_each_process_needs() -> None:
    made = render_chart("1.29.0", *WITH_INGRESS)
    kinds = {kind: [one for one in made if one["kind"] == kind] for kind in {one["kind"] for one in made}}
    assert {one["metadata"]["name"] for one in kinds["Deployment"]} == {f"m-{name}" for name in PROCESSES}
    assert {one["metadata"]["name"] for one in kinds["PodDisruptionBudget"]} == {f"m-{name}" for name in PROCESSES}
    (job,) = kinds["Job"]
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == ["migrate", "--wait"]
    for one in [*kinds["Deployment"], job]:
        pod = one["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
        assert not pod["automountServiceAccountToken"]
        if one is not job:
            assert container["args"] == ["run", container["name"]] and "livenessProbe" in container
            assert ("readinessProbe" in container) == (container["name"] in ("web", "api"))


def test_helm_waits_as_long_as_the_migration_may_take() -> None:
    """Helm ends a hook after five minutes where it is told nothing, and calls what is going on a failed release."""
    deadline, page = read_values()["migrate"]["deadlineSeconds"], (DEPLOY / "README.md").read_text()
    commands = re.findall(r"^    (helm (?:install|upgrade) (?:.*\\\n)*.*)$", page, re.MULTILINE)
    assert {one.split()[1] for one in commands} == {"install", "upgrade"}
    for command in commands:
        (minutes,) = re.findall(r"--timeout (\d+)m\b", command)
        assert int(minutes) * 60 > deadline, command


@pytest.mark.slow("programs")
@pytest.mark.skipif(HELM is None, reason="no helm on this machine")
def test_a_setting_that_yaml_takes_for_a_number_or_a_truth_is_text_as_it_was_written(tmp_path: Path) -> None:
    """A ConfigMap and a variable hold text alone: kubectl refuses anything else, and 2e+09 is no number of bytes."""
    given = {"WEB_THREADS": 8, "HTTPS": True, "A_SIZE": 2_000_000_000, "A_SHARE": 0.25, "A_DAY": "2026-12-01", "A_0": 0}
    written = {
        "WEB_THREADS": "8",
        "HTTPS": "true",
        "A_SIZE": "2000000000",
        "A_SHARE": "0.25",
        "A_DAY": "2026-12-01",
        "A_0": "0",
        "PUBLIC_URL": "https://mailhub.example.com",
        "ALLOWED_HOSTS": "mailhub.example.com",
    }
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"settings": given, "processes": {"web": {"settings": given}}}))
    made = render_chart("1.29.0", "--values", str(file), "--set", "settings.A_FLAG=1000000")
    (settings,) = (one["data"] for one in made if one["kind"] == "ConfigMap")
    assert settings == written | {"A_FLAG": "1000000"}
    (job,) = (one for one in made if one["kind"] == "Job")
    assert read_variables(job) == settings
    (web,) = (one for one in made if one["kind"] == "Deployment" and one["metadata"]["name"] == "m-web")
    assert read_variables(web).items() >= {name: written[name] for name in given}.items()


def read_variables(workload: dict[str, Any]) -> dict[str, Any]:
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    return {one["name"]: one["value"] for one in container["env"]}


@pytest.mark.slow("programs")
@pytest.mark.skipif(HELM is None, reason="no helm on this machine")
@pytest.mark.skipif(VALIDATE is None, reason="no kubernetes-validate on this machine")
@pytest.mark.parametrize("release", ["1.29", "1.37"])
def test_the_objects_of_the_chart_have_the_types_of_kubernetes(tmp_path: Path, release: str) -> None:
    made = render_chart(f"{release}.0", *WITH_INGRESS)
    ran = validate_objects(tmp_path, release, made)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    deployment = next(one for one in made if one["kind"] == "Deployment")
    deployment["spec"]["template"]["spec"]["terminationGracePeriod"] = 1
    ran = validate_objects(tmp_path, release, made)
    assert ran.returncode != 0 and "terminationGracePeriod" in ran.stdout + ran.stderr, "a wrong word would be seen"


def validate_objects(folder: Path, release: str, objects: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    file = folder / "objects.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    command = [str(VALIDATE), "--kubernetes-version", release, "--strict", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def render_chart(release: str, *options: str) -> list[dict[str, Any]]:
    """Return the objects that Helm makes for this release of Kubernetes."""
    command = [str(HELM), "template", "m", str(CHART), "--kube-version", release, *options]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [one for one in yaml.safe_load_all(text) if one]
