"""Each migration says whether mail goes on beside it, and what says so is so (mailhub/upgrades.py)."""

import importlib
import tomllib
from collections.abc import Iterator
from pathlib import Path

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db.migrations import Migration, operations
from django.db.migrations.operations.base import Operation
from django.db.models import NOT_PROVIDED

from campaigns.engine.failover import guard
from mailhub import upgrades

ROOT = Path(__file__).parents[2]
# What a migration may do beside the version before. SQL and Python are read by whoever reviews them.
HARMLESS = (
    *(operations.CreateModel, operations.AlterModelOptions, operations.AlterModelManagers, operations.RunSQL),
    *(operations.RunPython, operations.AlterField, AddIndexConcurrently, RemoveIndexConcurrently),
)


def since_the_release() -> Iterator[Migration]:
    """The migrations that no release has yet."""
    newest = upgrades.RELEASES[max(upgrades.RELEASES, key=lambda version: [*map(int, version.split("."))])]
    for app, names in guard.list_migrations().items():
        for name in names:
            if name > newest[app]:
                yield importlib.import_module(f"{app}.migrations.{name}").Migration(name, app)


def find_hindrances(migration: Migration) -> Iterator[str]:
    """Why programs of the version before cannot work beside it."""
    made = {one.name_lower for one in migration.operations if isinstance(one, operations.CreateModel)}
    yield from (why for one in migration.operations if (why := find_hindrance(one, made)))


def find_hindrance(one: Operation, made: set[str]) -> str:
    """made: models that no program before knows."""
    if isinstance(one, HARMLESS) or getattr(one, "model_name_lower", "") in made:
        return ""
    if isinstance(one, operations.SeparateDatabaseAndState):
        return "; ".join(filter(None, (find_hindrance(part, made) for part in one.database_operations)))
    if not isinstance(one, operations.AddField):
        return f"{one.describe()}: the version before may need what it takes, or waits for its lock"
    has_default = one.field.null or one.field.many_to_many or one.field.db_default is not NOT_PROVIDED
    return "" if has_default else f"{one.describe()}: the version before gives no value, so the column needs db_default"


def test_each_migration_since_the_release_declares_whether_mail_goes_on_beside_it() -> None:
    silent = [str(one) for one in since_the_release() if not isinstance(getattr(one, "additive", None), bool)]
    assert silent == [], "write `additive = True` or `additive = False` into the class: see mailhub/upgrades.py"


def test_what_is_declared_additive_takes_nothing_from_the_version_before() -> None:
    found = [f"{one}: {why}" for one in since_the_release() if one.additive for why in find_hindrances(one)]
    assert found == [], "declare it `additive = False`: `migrate` then stops calls"


def test_a_migration_without_a_way_back_says_why() -> None:
    silent = [
        str(one)
        for one in since_the_release()
        if upgrades.find_no_way_back(one) and not getattr(one, "no_way_back", "")
    ]
    assert silent == [], 'give its operations a reverse, or say `no_way_back = "why"`'


def test_the_releases_are_those_of_the_changelog_and_of_the_package() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    named = {line.split()[1] for line in lines if line.startswith("## ") and line != "## Unreleased"}
    assert set(upgrades.RELEASES) <= named, "each release names its newest migrations"
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert version in upgrades.RELEASES, "write the newest migrations of this version into mailhub/upgrades.py"
    for names in upgrades.RELEASES.values():
        assert all(name in guard.list_migrations()[app] for app, name in names.items()) and set(names) == set(
            guard.OURS
        )


def test_a_column_without_a_default_and_an_index_that_locks_are_found() -> None:
    from django.db import models

    class Hasty(Migration):
        operations = [
            operations.AddField("job", "colour", models.TextField()),
            operations.AddIndex("job", models.Index(fields=["colour"], name="job_colour")),
            operations.RemoveField("job", "size"),
            operations.AddField("job", "shade", models.TextField(db_default="")),
        ]

    found = list(find_hindrances(Hasty("0001_hasty", "campaigns")))
    assert [why.split(":")[0] for why in found] == [
        "Add field colour to job",
        "Create index job_colour on field(s) colour of model job",
        "Remove field size from job",
    ]
