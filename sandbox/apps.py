from django.apps import AppConfig


class SandboxConfig(AppConfig):
    """Brings the commands `demo` and `sandbox_vendor`; no models."""

    name = "sandbox"
