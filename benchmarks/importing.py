"""Time and memory of importing a file of recipients from disk to database.

`python -m benchmarks.importing [rows]`. Takes the steps of manage.py send_campaign in its own PostgreSQL, removed
afterwards. The database is durable: the commit waits for the disk.
"""

import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import django
from rich.console import Console

from benchmarks.results import keep
from mailhub import embedded

ROWS = 1_000_000
console = Console()


def write(path: Path, rows: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write("email,name,city,number\n")
        file.writelines(f"person{n}@example.org,Anna Müller,Newtown,{n:08}\n" for n in range(rows))


def run(path: Path) -> None:
    from django.core.management import call_command

    from campaigns.lists import intake
    from campaigns.models import Message, Sponsor
    from campaigns.texts import templates
    from vendors.models import Credential, Vendor

    call_command("migrate", verbosity=0)
    vendor = Vendor.objects.create(slug="vendor", name="vendor")
    content = templates.compile_templates("Hello {{ name }}", "Dear {{ name }} in {{ city }}: {{ number }}", html=False)
    with path.open("rb") as file:
        start = time.perf_counter()
        recipients = intake.check_table(intake.Table(file), vendor.channel, content)
        checked = time.perf_counter()
        intake.store_campaign(
            sponsor=Sponsor(name="Velma"),
            credential=Credential.objects.create(vendor=vendor),
            name="benchmark",
            subject="",
            body="",
            html=False,
            recipients=recipients,
        )
        stored = time.perf_counter()
    rows = Message.objects.count()
    assert rows == len(recipients)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    console.print(f"checked {rows:,} rows in {checked - start:.1f} s: {rows / (checked - start):,.0f} rows/s")
    console.print(f"stored  {rows:,} rows in {stored - checked:.1f} s: {rows / (stored - checked):,.0f} rows/s")
    keep("Memory of an import", "MB", {"of the whole process": [memory]})
    keep(
        f"Import of a file of {rows:,} recipients",
        "rows/s",
        {"checked": [rows / (checked - start)], "stored": [rows / (stored - checked)]},
    )
    console.print(f"most memory used: {memory:,.0f} MB in all")


def main(rows: int) -> None:
    with tempfile.TemporaryDirectory(prefix="mailhub-bench-") as home:
        os.environ["MAILHUB_HOME"] = home
        os.environ.pop("DATABASE_URL", None)
        os.environ["DJANGO_SETTINGS_MODULE"] = "mailhub.settings"
        os.environ.update(embedded.ensure_servers())
        try:
            django.setup()
            write(Path(home) / "people.csv", rows)
            run(Path(home) / "people.csv")
        finally:
            embedded.reset_servers(embedded.Home(Path(home)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
