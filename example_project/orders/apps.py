from django.apps import AppConfig


class OrdersConfig(AppConfig):
    name = "orders"
    # Models of this app that name no primary key get one of ours, too.
    default_auto_field = "django_idgen.fields.SnowflakeAutoField"
