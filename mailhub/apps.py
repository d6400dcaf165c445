from django.apps import AppConfig


class MailhubConfig(AppConfig):
    name = "mailhub"
