"""The project's settings with the yardstick's endpoint."""

from mailhub.settings import *  # noqa: F403

ROOT_URLCONF = "benchmarks.front_urls"
