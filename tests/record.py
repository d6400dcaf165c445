"""A pytest plugin of tests/run.py: writes down each test that failed, and whether it only missed a deadline.

A line is `late` or `broken`, a blank, and the test's id. A test under which its process died is `broken`.
"""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from tests import forked
from tests.waiting import DeadlineMissed

RECORD = "FAILED_TESTS_FILE"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Runs where the test ran; the report carries the answer to the process that hears of all tests."""
    report = yield
    report.late = call.excinfo is not None and type(call.excinfo.value) is DeadlineMissed
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and forked.NUMBER not in os.environ:
        kind = "late" if getattr(report, "late", False) else "broken"
        with Path(os.environ[RECORD]).open("a") as record:
            record.write(f"{kind} {report.nodeid}\n")
