from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0028_route_move_messages")]

    operations = [
        migrations.AddField(
            "campaign",
            "made_by",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                editable=False,
                help_text="A user or an API key's prefix",
                max_length=150,
            ),
        ),
        # 0034 builds it, while requests are stored.
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AddIndex(
                    "message",
                    models.Index(
                        condition=models.Q(("error_code__isnull", False)),
                        fields=["id"],
                        include=["error_code", "error_sub_type"],
                        name="message_failed",
                    ),
                ),
            ]
        ),
    ]
