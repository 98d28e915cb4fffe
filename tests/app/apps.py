from django.apps import AppConfig


class TestAppConfig(AppConfig):
    name = "tests.app"
    label = "app"
    default_auto_field = "django_idgen.fields.SnowflakeAutoField"
