"""Sphinx configuration: the site of README.md, CONTRIBUTING.md, CHANGELOG.md and docs/ (make docs).

The pages are plain Markdown, so that they read as well on a code host. The tables of contents come from the lists of
links in README.md and in each folder's README.md. A page that no list names is a warning, and every warning fails.
"""

import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx

project = "mailhub"
author = "the mailhub authors"
extensions = ["myst_parser", "sphinxcontrib.mermaid"]
root_doc = "README"
include_patterns = ["*.md", "deploy/*.md", "docs/**.md", "waiter/*.md"]
exclude_patterns = [".venv", ".venv-docs", ".venv-release", "dist", ".mailhub", "site"]
html_theme = "furo"
html_title = "mailhub"
html_show_copyright = False
html_copy_source = False
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
nitpicky = True
suppress_warnings = ["misc.highlighting_failure"]  # psql's own words in SQL

LISTED = re.compile(r"^- \[[^\]]+\]\((?!https?:)([^)#]+)\.md\)", re.MULTILINE)


def contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Give an index a table of contents of the pages it lists."""
    if page.endswith("README"):
        pages = LISTED.findall(source[0])
        source[0] += "\n".join(["", "```{toctree}", ":hidden:", "", *pages, "```", ""])


def home(app: Sphinx, failure: Exception | None) -> None:
    """Copy README.html to index.html, for web servers."""
    built = Path(app.outdir, "README.html")
    if failure is None and built.exists():
        shutil.copy(built, built.with_name("index.html"))


def setup(app: Sphinx) -> None:
    app.connect("source-read", contents)
    app.connect("build-finished", home)
