from django.apps import AppConfig


class SandboxConfig(AppConfig):
    """Provides the commands `demo` and `sandbox_vendor`; it has no models."""

    name = "sandbox"
