"""CONTRIBUTING's lists of files are short, and who follows one has the thing: done here in a copy of the product."""

import csv
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from tests.campaigns.rows import accepted, logged
from tests.workers import environment

ROOT = Path(__file__).parents[2]
PRODUCT = ("campaigns", "mailhub", "sandbox", "vendors", "waiter")
DEADLINE = 240  # seconds, so that a slow machine changes no verdict
SHORT = ("A column in the report", "An alarm", "An owner's page", "A command", "A vendor", "A metric")


def steps(title: str, **names: str) -> list[str]:
    """The file of each numbered step below this heading. names: what stands for <feature> and <name>."""
    section = (ROOT / "CONTRIBUTING.md").read_text().split(f"### {title}\n")[1].split("\n#")[0]
    files = re.findall(r"^\d\. `([\w/.<>]+)`", section, re.MULTILINE)
    for name, value in names.items():
        files = [file.replace(f"<{name}>", value) for file in files]
    return files


def folder(file: str) -> str:
    """A feature of campaigns/ or tests/, another package whole."""
    parts = file.split("/")
    return "/".join(parts[:2]) if parts[0] in ("campaigns", "tests") else parts[0]


@pytest.mark.parametrize("title", SHORT)
def test_a_list_is_short(title: str) -> None:
    files = steps(title)
    assert 1 < len(files) <= 4
    assert len({folder(file) for file in files}) <= 2


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A copy of the product, whose files a test may change."""
    for package in PRODUCT:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("manage.py", "pyproject.toml", "Procfile"):
        shutil.copy(ROOT / file, tmp_path)
    return tmp_path


def replace_once(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, (file, old)
    file.write_text(text.replace(old, new))


def run(scratch: Path, *arguments: str) -> str:
    line = [sys.executable, *arguments]
    done = subprocess.run(line, cwd=scratch, env=environment(), capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow("processes")
@pytest.mark.django_db(transaction=True)
def test_a_column_in_the_report(scratch: Path) -> None:
    names, cells, _test = steps("A column in the report")
    replace_once(scratch / names, '"sendings", "cause")', '"sendings", "cause", "units")')
    replace_once(scratch / cells, '"cause",\n)', '"cause", "units",\n)')
    last = '            CAUSE_LABELS[AnswerCause(row.cause)] if row.cause else "",\n'
    replace_once(scratch / cells, last, f"{last}            str(row.units or 1),\n")
    job = logged(1, [accepted()])
    header, row = csv.reader(run(scratch, "manage.py", "report", str(job.campaign_id), "--csv", "-").splitlines())
    assert header[-2:] == ["cause", "units"] and row[-1] == "1"


VIEW = '''"""Greetings."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from campaigns.doors.access import owners_page


@owners_page()
def index(request: HttpRequest) -> HttpResponse:
    return render(request, "owners/greetings.html", {"name": request.user.get_username()})
'''
TEMPLATE = """{% extends "owners/base.html" %}
{% block title %}Greetings{% endblock %}
{% block content %}<p>Hello {{ name }}</p>{% endblock %}
"""
VISIT = """
import os
import django
os.environ["DJANGO_SETTINGS_MODULE"] = "mailhub.settings"
django.setup()
from django.contrib.auth.models import User
from django.test import Client
client = Client(headers={"host": "localhost"})
print(client.get("/greetings/").status_code)
client.force_login(User.objects.get())
print(client.get("/greetings/").content.decode())
"""


@pytest.mark.slow("processes")
@pytest.mark.django_db(transaction=True)
def test_an_owners_page(scratch: Path) -> None:
    view, urls, template, _test = steps("An owner's page", feature="audience", name="greetings")
    (scratch / view).write_text(VIEW)
    (scratch / template).write_text(TEMPLATE)
    replace_once(scratch / urls, "import answers, finds", "import answers, finds, greetings")
    one = '        path("find/",'
    replace_once(scratch / urls, one, f'        path("greetings/", greetings.index, name="greetings"),\n{one}')
    User.objects.create_superuser("ann", password="a long password")
    shown = run(scratch, "-c", VISIT)
    assert shown.startswith("302\n")  # to the login, for strangers
    assert "<p>Hello ann</p>" in shown and "</nav>" in shown
