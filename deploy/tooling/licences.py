"""The licences of mailhub's packages: a list for a release, and a check against deploy/licences.toml.

`python -m deploy.tooling.licences` lists those of the packages that requirements.txt and -extras.txt name and this
environment has. It exits with 1 if one is not allowed.
"""

import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
POLICY = ROOT / "deploy" / "licences.toml"
PINS = ("requirements.txt", "requirements-extras.txt")
PINNED = re.compile(r"^([\w.-]+)(?:\[[\w,]+\])?==", re.MULTILINE)
TOKEN = re.compile(r"\(|\)|[^\s()]+")


class Policy(NamedTuple):
    """Allowed licences; the meanings of other words; the licences of packages that tell none."""

    allowed: frozenset[str]
    meanings: dict[str, str]
    packages: dict[str, str]


class Licensed(NamedTuple):
    """An installed package and its licence, an SPDX expression if it tells one."""

    name: str
    version: str
    licence: str


def read_policy(path: Path = POLICY) -> Policy:
    found = tomllib.loads(path.read_text())
    return Policy(frozenset(found["allowed"]), found["meanings"], found["packages"])


def list_packages(policy: Policy) -> list[Licensed]:
    """Return the packages that the pins name and this environment has, by name."""
    names = sorted({name for file in PINS for name in PINNED.findall((ROOT / file).read_text())})
    return [licensed for name in names for licensed in _look_up(name, policy)]


def _look_up(name: str, policy: Policy) -> Iterator[Licensed]:
    """Yield the package, or nothing where it is not installed, as one for another system."""
    try:
        facts = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return
    yield Licensed(name, facts["Version"], policy.packages.get(name) or find_licence(facts, policy))


def find_licence(facts: importlib.metadata.PackageMetadata, policy: Policy) -> str:
    """Return what the metadata say: an expression, the classifiers as a choice, or the first line of the text."""
    if expression := facts.get("License-Expression"):
        return str(expression)
    classifiers = [one.rpartition(" :: ")[2] for one in facts.get_all("Classifier") or [] if one.startswith("License")]
    told = [one for one in classifiers if one != "OSI Approved"]
    text = (facts.get("License") or "").strip().partition("\n")[0]
    words = told or ([text] if text else [])
    return " OR ".join(policy.meanings.get(one, re.sub(r"[\s()]+", "-", one) if told else one) for one in words)


def is_allowed(expression: str, allowed: frozenset[str]) -> bool:
    """Evaluate an SPDX expression: OR is a choice, AND binds more. Empty or unreadable ones are not allowed."""
    tokens = TOKEN.findall(expression)
    try:
        found = _any_of(tokens, allowed)
    except IndexError:
        return False
    return found and not tokens


def _any_of(tokens: list[str], allowed: frozenset[str]) -> bool:
    found = _all_of(tokens, allowed)
    while tokens and tokens[0] == "OR":
        tokens.pop(0)
        found = _all_of(tokens, allowed) or found
    return found


def _all_of(tokens: list[str], allowed: frozenset[str]) -> bool:
    found = _one_of(tokens, allowed)
    while tokens and tokens[0] == "AND":
        tokens.pop(0)
        found = _one_of(tokens, allowed) and found
    return found


def _one_of(tokens: list[str], allowed: frozenset[str]) -> bool:
    word = tokens.pop(0)
    if word != "(":
        return word in allowed
    found = _any_of(tokens, allowed)
    return tokens.pop(0) == ")" and found


def main() -> int:
    policy = read_policy()
    packages = list_packages(policy)
    sys.stdout.write("package,version,licence\n")
    for one in packages:
        sys.stdout.write(f"{one.name},{one.version},{one.licence}\n")
    refused = [one for one in packages if not is_allowed(one.licence, policy.allowed)]
    for one in refused:
        said = f"has the licence {one.licence}" if one.licence else "names no licence"
        sys.stderr.write(f"{one.name} {one.version} {said}: allow it in {POLICY.relative_to(ROOT)}, or do without\n")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
