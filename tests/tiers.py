"""A pytest plugin: the two tiers of tests, `--tier fast` for `make test` and `--tier slow` for `make test-slow`.

A test is slow if it, its class or its module is marked so, with a key of SLOW: `pytest.mark.slow("processes")`. Every
other test is fast. Tests named by a path run in either tier.
"""

import pytest

SLOW = {
    "programs": "needs a program that no Python package brings: a browser, Postfix, PgBouncer, RabbitMQ, SpamAssassin",
    "processes": "starts processes of mailhub, and waits until they are ready or have done their work",
    "servers": "starts a PostgreSQL or a Redis of its own, and ends it, freezes it or fills it",
    "time": "waits until a window, a lease or a timeout has passed",
    "many": "goes through many cases of a kind; the fast tier has some of them",
}

_test_is_fast = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=("fast", "slow"), help="only this tier's tests; a path names tests of any tier")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow(why): not in `make test`; why is a key of tests.tiers.SLOW")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of the other tier. Raises UsageError for a reason missing from SLOW."""
    tiers: dict[str, list[pytest.Item]] = {"fast": [], "slow": []}
    for item in items:
        tiers["slow" if is_slow(item) else "fast"].append(item)
    tier = config.getoption("--tier")
    if tier and config.args_source is not pytest.Config.ArgsSource.ARGS:
        items[:] = tiers.pop(tier)
        config.hook.pytest_deselected(items=[item for others in tiers.values() for item in others])


def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Note the tier of the test that begins."""
    global _test_is_fast
    _test_is_fast = not is_slow(item)


def demand_slow(what: str) -> None:
    """Raise AssertionError if a test of the fast tier is about to start this."""
    assert not _test_is_fast, f"{what} is for tests that are marked slow: see tests/tiers.py"


def is_slow(item: pytest.Item) -> bool:
    """Return True for a test of the slow tier. Raises UsageError for a reason missing from SLOW."""
    marks = list(item.iter_markers("slow"))
    for mark in marks:
        if len(mark.args) != 1 or mark.args[0] not in SLOW:
            raise pytest.UsageError(f"{item.nodeid}: slow{mark.args} names none of {', '.join(SLOW)} (tests/tiers.py)")
    return bool(marks)
