"""A pytest plugin of tests/run.py: writes down each test that failed, also one under which its process died."""

import os
from pathlib import Path

import pytest

RECORD = "FAILED_TESTS_FILE"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Called for every test; with pytest-xdist, the process that hears of all tests does the writing."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(os.environ[RECORD]).open("a") as record:
            record.write(f"{report.nodeid}\n")
