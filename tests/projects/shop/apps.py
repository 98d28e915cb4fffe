from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "shop"
    default_auto_field = "django_idgen.fields.SnowflakeAutoField"
