"""URLs of owners' pages about programs."""

from django.urls import URLPattern, path

from campaigns.integrations.pages import api_keys, webhooks


def urls() -> list[URLPattern]:
    return [
        path("webhooks/", webhooks.index, name="webhooks"),
        path("webhooks/add/", webhooks.add, name="webhook-add"),
        path("webhooks/<int:pk>/", webhooks.webhook, name="webhook"),
        path("webhooks/<int:pk>/rotate/", webhooks.rotate, name="webhook-rotate"),
        path("webhooks/<int:pk>/switch/", webhooks.switch, name="webhook-switch"),
        path("webhooks/<int:pk>/remove/", webhooks.remove, name="webhook-remove"),
        path("webhooks/<int:pk>/calls/<int:call>/redeliver/", webhooks.redeliver, name="webhook-redeliver"),
        path("keys/", api_keys.index, name="keys"),
        path("keys/make/", api_keys.make, name="key-make"),
        path("keys/<int:pk>/extend/", api_keys.extend, name="key-extend"),
        path("keys/<int:pk>/revoke/", api_keys.revoke, name="key-revoke"),
    ]
