"""The fast tier holds one adapter of each family to the whole contract, and the others to a part of it."""

import pytest

WHOLE = ("TestHttp", "TestSmtp")
EACH = 8  # of the misbehaviours of vendors


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow, for the further adapters of test_contract.py, the second loop and most misbehaviours."""
    for item in items:
        if not isinstance(item, pytest.Function) or item.module.__name__ != "tests.contracts.test_contract":
            continue
        indices = item.callspec.indices if hasattr(item, "callspec") else {}
        if item.cls.__name__ not in WHOLE and (indices.get("loop", 0) > 0 or indices.get("case", 0) % EACH > 0):
            item.add_marker(pytest.mark.slow("many"))
