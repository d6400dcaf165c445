"""Measures how unfamiliar answers are judged, by rules and with learned words: `python -m tests.causes.measure`.

By origin: today's rules, which were written with the whole corpus in view, and words learned from other origins. By
time: each answer is judged by the rules of the commit before the one that brought it, and by words learned from the
answers of earlier commits and other origins. With `--file FILE` only a file of the
corpus' form is judged, by today's rules and words of all answers but its own.
"""

import argparse
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path

from tests.causes.learning import Weights, features_of, learn_weights, overrule_by_vocabulary
from tests.causes.test_corpus import CORPUS, OURS, Reply, read_replies, replies

ROOT = Path(__file__).parents[2]
FOLDS = 5
JUDGE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from vendors.causes import judge_code, judge_reply
try:
    from vendors.causes.services import find_service
except ImportError:
    find_service = lambda name: None
for code, text, service, reported in json.load(sys.stdin):
    table = find_service(service) if service else None
    listed, _, explained = text.partition(": ")
    if table and reported and (found := table.find_cause(listed, reported=True)):
        print(found)
        continue
    judged = judge_code(listed, explained, None if reported else table) if table else judge_reply(code, text)
    print(judged.cause.value)
"""
Judged = tuple[Reply, str, str]
"""An answer, its cause by rules alone, and its cause with words."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path)
    path: Path | None = parser.parse_args().file
    print(f"{'':34}answers  right: rules  words  ours blamed on recipients  false us or capacity")
    if path:
        answers = read_replies(path)
        own = {one.text for one in answers}
        weights = learn_weights([one for one in replies() if one.text not in own])
        _show(path.stem, _judge_with(answers, judge_by_rules(answers), weights))
        return
    _show("by origin, rules of today", judge_by_origin(replies()))
    groups = list(judge_by_time(replies()))
    for name, judged in groups:
        _show(name, judged)
    _show("by time", [one for _, judged in groups for one in judged])


def judge_by_origin(answers: Sequence[Reply]) -> list[Judged]:
    """Judge each answer with words that other origins taught."""
    by_rules = judge_by_rules(answers)
    judged: list[Judged] = []
    for fold in range(FOLDS):
        weights = learn_weights([one for one in answers if _fold_of(one) != fold])
        tried = [(one, cause) for one, cause in zip(answers, by_rules, strict=True) if _fold_of(one) == fold]
        judged += _judge_with([one for one, _ in tried], [cause for _, cause in tried], weights)
    return judged


def judge_by_time(answers: Sequence[Reply]) -> Iterable[tuple[str, list[Judged]]]:
    """Yield for each commit that brought answers its name and how these were judged by what stood before."""
    commits = _git("log", "--reverse", "--topo-order", "--format=%h", "--", str(CORPUS)).decode().split()
    brought = _find_commits(answers, commits)
    earlier: list[Reply] = []
    for commit in commits:
        new = brought[commit]
        if new and earlier:
            known = {name for one in new for name in (one.origin.casefold(), one.source)}
            others = [one for one in earlier if not {one.origin.casefold(), one.source} & known]
            files = ", ".join(sorted({one.file for one in new}))
            yield f"{commit} {files}"[:33], _judge_with(new, judge_by_rules(new, f"{commit}^"), learn_weights(others))
        earlier += new


def judge_by_rules(answers: Sequence[Reply], commit: str = "") -> list[str]:
    """Return the causes by the rules of a commit, or by those of the files as they stand."""
    asked = json.dumps([(one.code, one.text, one.service, one.reported) for one in answers])
    with tempfile.TemporaryDirectory() as home:
        if commit:
            with tarfile.open(fileobj=io.BytesIO(_git("archive", commit, "vendors/causes"))) as archive:
                archive.extractall(home, filter="data")
            Path(home, "vendors", "__init__.py").touch()
        line = [sys.executable, "-c", JUDGE, home if commit else str(ROOT)]
        done = subprocess.run(line, input=asked.encode(), stdout=subprocess.PIPE, check=True, cwd=home)
    return done.stdout.decode().split()


def _judge_with(answers: Sequence[Reply], by_rules: Sequence[str], weights: Weights) -> list[Judged]:
    return [
        (one, cause, overrule_by_vocabulary(cause, features_of(one), weights))
        for one, cause in zip(answers, by_rules, strict=True)
    ]


def _find_commits(answers: Sequence[Reply], commits: Sequence[str]) -> dict[str, list[Reply]]:
    """Return the answers by the first commit that has their text; those of no commit are left out."""
    left = {(one.service, one.text): one for one in answers}
    found: dict[str, list[Reply]] = defaultdict(list)
    for commit in commits:
        for path in _list_files(commit):
            for origin in tomllib.loads(_git("show", f"{commit}:{path}").decode())["origin"]:
                keys = [(origin.get("service", ""), one["text"]) for one in origin["replies"]]
                found[commit] += [left.pop(key) for key in keys if key in left]
    return found


def _list_files(commit: str) -> list[str]:
    listed = _git("ls-tree", "--name-only", commit, f"{CORPUS.relative_to(ROOT).as_posix()}/").decode().split()
    return [path for path in listed if path.endswith(".toml")]


def _fold_of(one: Reply) -> int:
    return int.from_bytes(sha256(one.origin.casefold().encode()).digest()[:4]) % FOLDS


def _show(name: str, judged: Sequence[Judged]) -> None:
    if not judged:
        return
    shares = [sum(said[way] in (said[0].cause, said[0].also) for said in judged) / len(judged) for way in (1, 2)]
    blamed, false = ([_count(judged, way, count) for way in (1, 2)] for count in (_is_blamed, _is_false))
    print(
        f"{name:34}{len(judged):7}  {shares[0]:12.1%}{shares[1]:7.1%}"
        f"  {blamed[0]:13} to {blamed[1]:3}  {false[0]:14} to {false[1]:3}"
    )


def _count(judged: Sequence[Judged], way: int, fits: Callable[[Reply, str], bool]) -> int:
    return sum(fits(said[0], said[way]) for said in judged)


def _is_blamed(one: Reply, cause: str) -> bool:
    return one.cause in OURS and cause == "recipient" and one.also != cause


def _is_false(one: Reply, cause: str) -> bool:
    return cause in OURS and cause not in (one.cause, one.also)


def _git(*options: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *options], stdout=subprocess.PIPE, check=True).stdout


if __name__ == "__main__":
    main()
