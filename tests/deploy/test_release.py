"""What `make release` refuses, and what it takes along; the wheel itself is tried in tests/mailhub/test_wheel.py."""

import re
import subprocess
from email.message import Message
from importlib.metadata import PackageMetadata
from pathlib import Path
from typing import cast

import pytest

from deploy.tooling import licences, release, weaknesses

ROOT = Path(__file__).parents[2]
CHANGES = """\
# Changelog

## Unreleased

## 1.1.0 - 2030-01-02

### Added
- One.

## 1.0.0
- Two.

## 0.9.0 - 2029-01-02
"""


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_the_section_of_a_version_is_taken_without_its_heading() -> None:
    assert release.take_section(CHANGES, "1.1.0") == "### Added\n- One.\n"


@pytest.mark.parametrize(
    ("version", "why"),
    [("1.2.0", r"has no section 1\.2\.0: add"), ("1.0.0", "no date"), ("0.9.0", "says nothing about 0.9.0")],
)
def test_a_version_of_which_the_changelog_tells_too_little_is_refused(version: str, why: str) -> None:
    with pytest.raises(release.NotReleasable, match=why):
        release.take_section(CHANGES, version)


def test_changes_that_no_version_has_are_refused() -> None:
    with pytest.raises(release.NotReleasable, match="changes under Unreleased"):
        release.take_section(CHANGES.replace("## Unreleased\n", "## Unreleased\n- Three.\n"), "1.1.0")


def test_this_version_has_its_section_in_the_changelog() -> None:
    changelog = re.sub(r"(?s)(## Unreleased\n).*?(?=^## \d)", r"\1\n", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)
    assert len(release.take_section(changelog, release.read_version())) > 100


def test_a_tree_with_anything_that_is_not_committed_is_refused_by_name(checkout: Path) -> None:
    release.check_tree(checkout)
    (checkout / "file").write_text("two")
    (checkout / "new").write_text("three")
    with pytest.raises(release.NotReleasable, match=r"not everything is committed \(file, new\): commit or remove it"):
        release.check_tree(checkout)


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(release.NotReleasable, match="no git repository"):
        release.check_tree(tmp_path)


def test_the_tag_of_another_commit_is_refused_and_that_of_this_one_is_not(checkout: Path) -> None:
    release.check_tag("1.1.0", checkout)
    git(checkout, "tag", "-a", "v1.1.0", "-m", "1.1.0")
    release.check_tag("1.1.0", checkout)
    git(checkout, "commit", "-q", "--allow-empty", "-m", "second")
    with pytest.raises(release.NotReleasable, match="raise the version"):
        release.check_tag("1.1.0", checkout)
    release.check_tag("1.2.0", checkout)


def test_the_sums_are_those_of_sha256sum_and_a_second_release_changes_nothing(tmp_path: Path) -> None:
    made, dist = tmp_path / "made", tmp_path / "dist"
    made.mkdir()
    (made / "a.whl").write_bytes(b"a")
    release.write_sums(made)
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=made, check=True, capture_output=True)
    assert [release.publish(made, dist) for _ in range(2)] == [True, False]
    (dist / "of_an_older_version.whl").write_bytes(b"b")
    assert release.publish(made, dist)
    assert sorted(path.name for path in dist.iterdir()) == ["SHA256SUMS", "a.whl"]


def test_every_package_has_a_licence_that_is_allowed() -> None:
    policy = licences.read_policy()
    packages = licences.list_packages(policy)
    assert len(packages) > 60
    assert [one for one in packages if not licences.is_allowed(one.licence, policy.allowed)] == []
    named = {word for one in packages for word in re.findall(r"[\w.-]+", one.licence)}
    assert policy.allowed - named == set(), "allowed, and no package has it"


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only AND MIT", False),
        ("MIT OR GPL-3.0-only AND GPL-2.0-only", True),
        ("BSD AND (MIT OR GPL-3.0-only)", True),
        ("(MIT", False),
        ("MIT WITH something", False),
        ("", False),
    ],
)
def test_an_expression_is_allowed_if_one_of_its_choices_is(expression: str, allowed: bool) -> None:
    assert licences.is_allowed(expression, frozenset({"MIT", "BSD"})) is allowed


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ([("License-Expression", "MIT"), ("License", "GPL")], "MIT"),
        ([("Classifier", "License :: OSI Approved :: MIT License")], "MIT"),
        ([("License", "New BSD\nmore text")], "BSD-3-Clause"),
        ([("Classifier", "License :: OSI Approved :: A License (A)")], "A-License-A-"),
        ([("Classifier", "Topic :: Text")], ""),
    ],
)
def test_a_licence_is_read_where_the_package_tells_it(fields: list[tuple[str, str]], licence: str) -> None:
    message = Message()
    for name, value in fields:
        message[name] = value
    assert licences.find_licence(cast(PackageMetadata, message), licences.read_policy()) == licence


def package(name: str, **facts: object) -> dict[str, object]:
    return {"name": name, "version": "1.0", **facts}


def test_a_known_weakness_fails_the_audit_and_a_database_that_is_away_does_not() -> None:
    sound, away = package("a", vulns=[]), {"name": "c", "skip_reason": "not found"}
    weak = package("b", vulns=[{"id": "PYSEC-1", "fix_versions": ["1.1", "2.0"]}])
    assert weaknesses.describe_findings({"dependencies": [sound]}) == (0, ["1 packages audited, 0 weaknesses"])
    assert weaknesses.describe_findings({"dependencies": [sound, weak, away]}) == (
        1,
        ["b 1.0: PYSEC-1, mended in 1.1, 2.0", "2 packages audited, 1 weaknesses, 1 unknown"],
    )
    for nothing in (None, {"dependencies": []}, {"dependencies": [away]}):
        code, (sentence,) = weaknesses.describe_findings(nothing)
        assert code == 0 and "cannot be reached" in sentence
