from django.contrib.auth.models import AbstractUser

from django_idgen.fields import SnowflakeField


class Member(AbstractUser):
    id = SnowflakeField(primary_key=True)
