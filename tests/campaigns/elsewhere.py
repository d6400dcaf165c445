"""Has letters of a test rendered by another process, as a web server has those that take long."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from campaigns.texts import render_pool, templates
from campaigns.texts.render_pool import RenderPool, RequestRenderer


@contextmanager
def rendering_elsewhere(patch: pytest.MonkeyPatch) -> Iterator[RequestRenderer]:
    """All that this thread compiles and renders, but what only shows fields."""
    patch.setattr(templates, "INTRICATE", -1)
    patch.setattr(render_pool, "FIRST", -1)
    by, own = RequestRenderer(RenderPool(1)), threading.get_ident()
    patch.setattr(templates, "renderer", lambda: by if threading.get_ident() == own else None)
    try:
        yield by
    finally:
        process = by._process
        by.close()
        if process:
            process.end()


@pytest.fixture(autouse=True, params=["here", "elsewhere"])
def where(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[RequestRenderer | None]:
    """Each test of the module runs twice: what it says holds for both processes."""
    if request.param == "here":
        yield None
        return
    with rendering_elsewhere(monkeypatch) as by:
        yield by
