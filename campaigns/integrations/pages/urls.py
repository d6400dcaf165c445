"""URLs of owners' pages about programs."""

from django.urls import URLPattern, path

from campaigns.integrations.pages import api_keys, webhooks


def urls() -> list[URLPattern]:
    return [
        path("webhooks/", webhooks.list_webhooks_page, name="webhooks"),
        path("webhooks/add/", webhooks.add_webhook, name="webhook-add"),
        path("webhooks/<int:pk>/", webhooks.show_webhook, name="webhook"),
        path("webhooks/<int:pk>/rotate/", webhooks.rotate_secret, name="webhook-rotate"),
        path("webhooks/<int:pk>/switch/", webhooks.switch_webhook, name="webhook-switch"),
        path("webhooks/<int:pk>/remove/", webhooks.remove_webhook, name="webhook-remove"),
        path("webhooks/<int:pk>/calls/<int:call>/redeliver/", webhooks.redeliver_event, name="webhook-redeliver"),
        path("keys/", api_keys.list_keys_page, name="keys"),
        path("keys/make/", api_keys.make_key, name="key-make"),
        path("keys/<int:pk>/extend/", api_keys.extend_on_page, name="key-extend"),
        path("keys/<int:pk>/revoke/", api_keys.revoke_on_page, name="key-revoke"),
    ]
