"""What Django and DRF store about a user finds it. Run by name: it needs ``members_settings``."""

from __future__ import annotations

import re

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import Permission
from django.core import mail
from django.core.management import call_command
from django.test import TestCase, override_settings
from django.urls import include, path
from rest_framework.authentication import TokenAuthentication
from rest_framework.authtoken.models import Token
from rest_framework.test import APIRequestFactory

from .models import Member

admin.site.register(Member, UserAdmin)
urlpatterns = [
    path("admin/", admin.site.urls),
    path("accounts/", include("django.contrib.auth.urls")),
]


@override_settings(ROOT_URLCONF=__name__)
class MemberTests(TestCase):
    def setUp(self) -> None:
        given = {"username": "chief", "email": "chief@example.com"}
        call_command("createsuperuser", interactive=False, verbosity=0, **given)
        self.chief = Member.objects.get()
        self.chief.set_password("first")
        self.chief.save()
        self.assertGreater(self.chief.pk, 1 << 53)

    def test_a_session_and_the_log_of_the_admin(self) -> None:
        self.assertTrue(self.client.login(username="chief", password="first"))
        other = Member.objects.create_user("other", is_staff=True)
        other.user_permissions.add(Permission.objects.get(codename="view_member"))
        url = f"/admin/members/member/{other.pk}/password/"
        answer = self.client.post(
            url, {"usable_password": "true", "password1": "Tr1cky-one", "password2": "Tr1cky-one"}
        )
        self.assertEqual(answer.status_code, 302)
        logged = LogEntry.objects.get()
        self.assertEqual((logged.user, logged.get_edited_object()), (self.chief, other))
        self.assertTrue(self.client.login(username="other", password="Tr1cky-one"))
        self.assertEqual(self.client.get("/admin/members/member/").status_code, 200)

    def test_a_link_that_resets_a_password(self) -> None:
        self.client.post("/accounts/password_reset/", {"email": "chief@example.com"})
        (link,) = re.findall(r"/accounts/reset/\S+", mail.outbox[0].body)
        form = self.client.get(link, follow=True).redirect_chain[-1][0]
        passwords = {"new_password1": "Tr1cky-one", "new_password2": "Tr1cky-one"}
        self.assertEqual(self.client.post(form, passwords).status_code, 302)
        self.assertTrue(self.client.login(username="chief", password="Tr1cky-one"))

    def test_a_token(self) -> None:
        token = Token.objects.create(user=self.chief)
        request = APIRequestFactory().get("/", HTTP_AUTHORIZATION=f"Token {token.key}")
        self.assertEqual(TokenAuthentication().authenticate(request), (self.chief, token))
