"""The tables: segments by tag, and the records that lend worker ids.

``LeafAlloc`` has the columns of Leaf's ``leaf_alloc`` table, under that name,
so that a running Leaf and this app can allocate from one table.

The tables are unmanaged: our own migration makes them, but ``flush`` leaves them alone. A
``TransactionTestCase`` (or a careless ``manage.py flush``) must not forget which ids were
given out and which worker ids are held.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models, router
from django.db.models import Case, F, Q, Value, When
from django.db.models.functions import Greatest, Now
from django.db.models.lookups import Exact
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from .core.errors import InvalidTag
from .core.segment import MAX_ID, MAX_STEP, MAX_TAG_LENGTH, check_tag
from .db.connection import configured_alias, home_of

if TYPE_CHECKING:
    Text = models.CharField[str | int | models.expressions.Combinable, str]
else:
    Text = models.CharField

__all__ = [
    "AccessToken",
    "Installation",
    "LeafAlloc",
    "LeaseHistory",
    "NameField",
    "NamespaceRecord",
    "SegmentHistory",
    "WorkerLease",
]

M = TypeVar("M", bound=models.Model)
DEFAULT_STEP = 1000
RISING = ("max_id", "largest_step")
"""Columns of a tag that no save may lower."""
LONGEST_LIFE = timedelta(days=36_500)
"""How far in the future an access token may end."""
TOLD_YEARS = range(2, 9999)
"""Years that every time zone can show."""


def validate_tag(value: str) -> None:
    try:
        check_tag(value)
    except InvalidTag as error:
        raise ValidationError(
            _("“%(tag)s” can't be a tag: it needs 1 to 128 printable characters."),
            code="invalid_tag",
            params={"tag": str(value)[:150]},
        ) from error


def validate_patterns(value: str) -> None:
    for line in value.splitlines():
        if len(line) > MAX_TAG_LENGTH or not line.isprintable() or line != line.strip():
            raise ValidationError(
                _("“%(line)s” can't be matched: it needs 1 to 128 printable characters."),
                code="invalid_pattern",
                params={"line": line[:150]},
            )


class LineField(Text):
    """A ``CharField`` of one line: what logs and lists show raw. Migrations see a ``CharField``."""

    default_validators = [  # noqa: RUF012
        *models.CharField.default_validators,
        # No control characters, line breaks, or marks that turn the direction of what follows.
        RegexValidator(r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*\Z"),
    ]

    def deconstruct(self) -> Any:
        name, _path, args, kwargs = super().deconstruct()
        return name, "django.db.models.CharField", args, kwargs


class NameField(LineField):
    """A ``CharField`` that compares characters, whatever the collation.

    MySQL and MariaDB take "Orders", "ordérs" and "orders " for "orders", unless the column says
    otherwise. We can't change the columns of Leaf's table.
    """


@NameField.register_lookup
class ExactName(Exact):
    """``exact`` of a :class:`NameField`."""

    def as_mysql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        lhs, lhs_params = self.process_lhs(compiler, connection)
        rhs, rhs_params = self.process_rhs(compiler, connection)
        # First as it is, for the index; then byte by byte, which ignores padding, too.
        exactly = " = ".join(
            f"CAST(CONVERT({side} USING utf8mb4) AS BINARY)" for side in (lhs, rhs)
        )
        return f"({lhs} = {rhs} AND {exactly})", [*lhs_params, *rhs_params] * 2


class HomeQuerySet(models.QuerySet[M]):
    """Rows in the database's home: for SQLite, the file beside it."""

    @property
    def db(self) -> str:
        return home_of(super().db)


class HomeManager(models.Manager[M]):
    """Models in migrations have it, too."""

    use_in_migrations = True
    _queryset_class = HomeQuerySet


class HomeModel(models.Model):
    """A model whose rows are in the database's home. Instances have the project's alias."""

    objects: ClassVar[HomeManager[Self]] = HomeManager()

    class Meta:
        abstract = True

    @classmethod
    def from_db(cls, db: str | None, field_names: Any, values: Any, **options: Any) -> Any:
        alias = None if db is None else configured_alias(db)
        return super().from_db(alias, field_names, values, **options)

    def _save_table(
        self,
        raw: bool = False,
        cls: Any = None,
        force_insert: bool = False,
        force_update: bool = False,
        using: Any = None,
        update_fields: Any = None,
    ) -> bool:
        saved: bool = super()._save_table(  # type: ignore[misc]
            raw, cls, force_insert, force_update, home_of(using), update_fields
        )
        return saved

    def delete(self, using: Any = None, keep_parents: bool = False) -> tuple[int, dict[str, int]]:
        alias = using or router.db_for_write(type(self), instance=self)
        return super().delete(using=home_of(alias), keep_parents=keep_parents)


class LeafAlloc(HomeModel):
    """One tag. ``max_id`` is the first id that was not yet given out.

    A fetch adds ``step`` to ``max_id`` in one statement, and gets the ``step``
    ids below the new value.

    :meth:`save` and ``loaddata`` never lower ``max_id``: a row that was read before a
    fetch, or dumped, would give out the same ids again. If ``max_id`` was raised by
    mistake, and no id above was used, lower it with ``QuerySet.update()``.
    """

    biz_tag = NameField(
        _("tag"), max_length=MAX_TAG_LENGTH, primary_key=True, validators=[validate_tag]
    )
    max_id = models.BigIntegerField(
        _("next free id"),
        default=1,
        db_default=1,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_ID)],
        help_text=_("The first id that no process was given yet."),
    )
    step = models.PositiveIntegerField(
        _("step"),
        default=DEFAULT_STEP,
        db_default=DEFAULT_STEP,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_STEP)],
        help_text=_(
            "How many ids a process fetches at a time. A change applies from the next fetch."
        ),
    )
    description = LineField(_("description"), max_length=256, blank=True, db_default="")
    update_time = models.DateTimeField(_("last change"), auto_now=True, db_default=Now())

    # Not Leaf's columns. Each has a database default, so that Leaf can still insert rows.
    delta = models.PositiveIntegerField(
        _("delta"),
        default=1,
        db_default=1,
        validators=[MinValueValidator(1)],
        help_text=_("Distance between two ids; the number of databases that share the tag."),
    )
    remainder = models.PositiveIntegerField(
        _("remainder"),
        default=0,
        db_default=0,
        help_text=_("What this database's ids leave when divided by delta."),
    )
    largest_step = models.BigIntegerField(
        _("largest step"),
        default=0,
        db_default=0,
        help_text=_("Twice the longest range of one fetch: what may be lost with the server."),
    )
    """A fetch moves max_id by more only after an earlier transaction has raised this.

    It is twice the longest fetch: the next one may be twice as long, and be lost.
    """
    server = models.CharField(_("database server"), max_length=200, blank=True, db_default="")
    """The server of the last fetch. Another server may have missed fetches."""
    rate = models.FloatField(_("ids a second"), default=0.0, db_default=0.0)
    """The fleet's last measured consumption, for forecasts."""
    measured_at = models.DateTimeField(_("measured"), null=True, blank=True)
    measured_used = models.BigIntegerField(_("used when measured"), default=0, db_default=0)
    """``max_id`` at that time, minus what was in the pool."""
    paused = models.BooleanField(
        _("paused"),
        default=False,
        db_default=False,
        help_text=_("No process is given more of its ids; those that they hold are used up."),
    )
    holder = models.CharField(_("last holder"), max_length=200, blank=True, db_default="")
    """The process that fetched last: a label (host and process)."""
    fetched_at = models.DateTimeField(_("last fetch"), null=True, blank=True)
    fetched_ids = models.BigIntegerField(_("ids of the last fetch"), default=0, db_default=0)
    tables_seen = models.TextField(default="", db_default="", editable=False, serialize=False)
    """Keys, with spaces between them, of the tables whose rows are below ``max_id``.

    A field's process looks at the rows of a table that is not among them, before it takes ids.
    ``dumpdata`` leaves them out: another database has other rows.
    """

    class Meta:
        managed = False
        base_manager_name = "objects"
        db_table = "leaf_alloc"
        ordering: ClassVar[list[str]] = ["biz_tag"]
        verbose_name = _("segment tag")
        verbose_name_plural = _("segment tags")

    def __str__(self) -> str:
        return self.biz_tag

    # loaddata gets here, too.
    def _do_update(self, base_qs: Any, using: Any, pk_val: Any, values: Any, *args: Any) -> Any:
        raised = [
            (field, model, Greatest(F(field.name), value) if field.name in RISING else value)
            for field, model, value in values
        ]
        return super()._do_update(base_qs, using, pk_val, raised, *args)


class SegmentHistory(HomeModel):
    """Who got a range of a tag's ids. Written only where history is on."""

    id = models.BigAutoField(primary_key=True)
    tag = NameField(_("tag"), max_length=MAX_TAG_LENGTH)
    start = models.BigIntegerField(_("first id"))
    stop = models.BigIntegerField(_("end (not included)"))
    delta = models.PositiveIntegerField(_("delta"), default=1)
    holder = models.CharField(_("holder"), max_length=200)
    """The process that got it: a label (host and process), or the pool."""
    taken_at = models.DateTimeField(_("taken"), db_index=True)

    class Meta:
        managed = False
        base_manager_name = "objects"
        db_table = "django_idgen_history"
        ordering: ClassVar[list[str]] = ["-taken_at", "-id"]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["tag", "start"], name="django_idgen_history_tag"),
        ]
        verbose_name = _("segment granted")
        verbose_name_plural = _("segments granted")

    def __str__(self) -> str:
        return f"{self.tag} [{self.start}, {self.stop})"


class Installation(HomeModel):
    """This database as a registry of worker ids; there is one row, with key 1.

    The row is made together with the table. So an existing table without it shows that our
    tables were emptied.
    """

    key = models.PositiveSmallIntegerField(primary_key=True, default=1)
    identity = models.CharField(max_length=32)
    protocol = models.PositiveSmallIntegerField(_("protocol"))
    namespaces = models.TextField(default="{}")
    """JSON object of every namespace that was ever opened, with a backup of its record.

    A namespace named here without a record was lost. What concerns all namespaces has the
    name "": see :data:`.core.stored.ALL`.
    """
    server = models.CharField(max_length=200, blank=True, default="", db_default="")
    """The server of the last fetch of segments. Another server may have missed fetches."""
    largest_step = models.BigIntegerField(default=0, db_default=0)
    """The maximum over all tags: what a tag that was lost whole may have taken."""
    first_id = models.BigIntegerField(default=1, db_default=1)
    """Where a new tag starts: above 1 after a server that may have lost tags took over."""
    delta = models.PositiveIntegerField(default=1, db_default=1)
    """How many databases share their tags; 1 for this one alone."""
    remainder = models.PositiveIntegerField(default=0, db_default=0)
    """What this database's ids leave when divided by delta. New tags get both numbers."""
    growing = models.BooleanField(default=False, db_default=False)
    """Whether it is about to share the tags of other databases, and has no rows of them yet."""

    class Meta:
        managed = False
        base_manager_name = "objects"
        db_table = "django_idgen_installation"

    def __str__(self) -> str:
        return self.identity


class NamespaceRecord(HomeModel):
    """The settings of a namespace, and what survives a loss of its marks."""

    name = NameField(_("namespace"), max_length=128, primary_key=True)
    installation = models.CharField(_("installation"), max_length=32, blank=True, db_default="")
    """The :class:`Installation` it belongs to. A different one there means that ours was lost."""
    fingerprint = models.TextField(_("fingerprint"))
    server = models.CharField(_("database server"), max_length=200, blank=True)
    generation = models.BigIntegerField(_("generation"), default=1)
    fence = models.BigIntegerField(_("fence (ticks)"), default=0)
    largest_window = models.BigIntegerField(_("largest window (ticks)"))
    highest_until = models.BigIntegerField(_("highest mark (ticks)"), default=0, db_default=0)
    """The highest mark that any worker id ever had, in case worker rows are deleted."""
    workers_made = models.BigIntegerField(_("worker ids ever lent"), default=0)
    """How many worker rows were ever made. Fewer rows mean that some were deleted."""
    ceiling = models.BigIntegerField(_("ceiling (ticks)"), default=0, db_default=0)
    """The first tick that a registry outside this database may not lend; 0 without one."""
    incarnation = models.CharField(_("incarnation"), max_length=200, blank=True, db_default="")
    """The life of that registry which this generation belongs to."""
    protocol = models.PositiveSmallIntegerField(_("protocol"))

    class Meta:
        managed = False
        base_manager_name = "objects"
        db_table = "django_idgen_namespace"
        ordering: ClassVar[list[str]] = ["name"]
        verbose_name = _("namespace")
        verbose_name_plural = _("namespaces")

    def __str__(self) -> str:
        return self.name


class WorkerLease(HomeModel):
    """One worker id of a namespace: its mark, and who holds it."""

    # Explicit: the project's default primary key may be one of our own fields.
    id = NameField(primary_key=True, max_length=160, editable=False)
    """``namespace/worker``, so that a worker id has one row on every database."""
    namespace = NameField(_("namespace"), max_length=128, db_index=True)
    worker = models.BigIntegerField(_("worker id"))
    token = NameField(_("token"), max_length=32, blank=True)
    """Empty once the worker id is released."""
    start = models.BigIntegerField(_("window start (tick)"))
    until = models.BigIntegerField(_("window end (tick)"))
    """The high-water mark: the first tick not yet promised to anyone."""
    generation = models.BigIntegerField(_("generation"))
    holder = NameField(_("holder"), max_length=200, blank=True)
    """The current or last holder: a label, never proof."""
    acquired_at = models.DateTimeField(_("acquired"))
    seen_at = models.DateTimeField(_("last seen"))
    clock_offset_us = models.BigIntegerField(_("clock offset (µs)"), null=True, blank=True)
    """How far the holder's wall clock was ahead of the registry's when last seen."""
    protocol = models.PositiveSmallIntegerField(_("protocol"))

    class Meta:
        managed = False
        base_manager_name = "objects"
        db_table = "django_idgen_workerlease"
        ordering: ClassVar[list[str]] = ["namespace", "worker"]
        verbose_name = _("worker lease")
        verbose_name_plural = _("worker ids")

    def __str__(self) -> str:
        return f"{self.namespace}/{self.worker}"

    @staticmethod
    def key_of(namespace: str, worker: int) -> str:
        return f"{namespace}/{worker}"


class LeaseHistory(HomeModel):
    """Unused: the log says who had a worker id (``lease_acquired``)."""

    id = models.BigAutoField(primary_key=True)
    namespace = NameField(_("namespace"), max_length=128)
    worker = models.BigIntegerField(_("worker id"))
    start = models.BigIntegerField(_("window start (tick)"))
    """Earlier holders stamped only ticks below."""
    holder = models.CharField(_("holder"), max_length=200, blank=True)
    acquired_at = models.DateTimeField(_("acquired"), db_index=True)

    class Meta:
        managed = False
        base_manager_name = "objects"
        db_table = "django_idgen_leasehistory"
        ordering: ClassVar[list[str]] = ["-acquired_at", "-id"]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(
                fields=["namespace", "worker", "start"], name="django_idgen_leasehist_tick"
            ),
        ]
        verbose_name = _("lease history row")
        verbose_name_plural = _("lease history rows")

    def __str__(self) -> str:
        return f"{self.namespace}/{self.worker} from {self.start}"


class AccessToken(models.Model):
    """Lets a client take ids over HTTP, of the tags and generators that it names.

    Only a digest of the secret is stored: see :mod:`.rest.tokens`. A client may have several
    tokens, so that one can be replaced without a pause.

    An end in the past is final: :meth:`save`, forms and ``loaddata`` don't change it.
    """

    id = models.BigAutoField(primary_key=True)
    name = NameField(
        _("client"),
        max_length=100,
        help_text=_("The program that uses the token. Several tokens may have one name."),
    )
    digest = models.CharField(_("digest"), max_length=64, unique=True, editable=False)
    hint = models.CharField(_("ends in"), max_length=8, editable=False)
    """The last characters of the secret, to distinguish tokens."""
    tags = models.TextField(
        _("tags"),
        blank=True,
        default="",
        validators=[validate_patterns],
        help_text=_(
            "Tags whose ids the token may take, one per line. “*” stands for any characters."
        ),
    )
    generators = models.TextField(
        _("generators"),
        blank=True,
        default="",
        validators=[validate_patterns],
        help_text=_(
            "Aliases of generators whose ids the token may take, one per line. “*” as above."
        ),
    )
    leases = models.TextField(
        _("may run its own generator"),
        blank=True,
        default="",
        validators=[validate_patterns],
        help_text=_(
            "Aliases of generators whose worker ids the client may borrow to make ids itself, one "
            "per line."
        ),
    )
    created_at = models.DateTimeField(_("made"), auto_now_add=True)
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    """When it ends; empty for never."""

    class Meta:
        db_table = "django_idgen_accesstoken"
        ordering: ClassVar[list[str]] = ["name", "-id"]
        verbose_name = _("access token")
        verbose_name_plural = _("access tokens")

    def __str__(self) -> str:
        return f"{self.name} (…{self.hint})"

    @property
    def has_ended(self) -> bool:
        """Whether it is refused."""
        return self.expires_at is not None and self.expires_at <= timezone.now()

    @classmethod
    def from_db(cls, *args: Any, **kwargs: Any) -> AccessToken:
        token = super().from_db(*args, **kwargs)
        end = token.__dict__.get("expires_at")
        if end is not None and end.year not in TOLD_YEARS:
            # From an earlier version, or written by SQL: some time zones could not show it.
            token.expires_at = end.replace(year=min(max(end.year, TOLD_YEARS[0]), TOLD_YEARS[-1]))
        return token

    def clean(self) -> None:
        super().clean()
        now, end = timezone.now(), self.expires_at
        # Ignores time zones: a day more or less makes no difference.
        if end is not None and (
            abs(end.replace(tzinfo=None) - now.replace(tzinfo=None))
            > LONGEST_LIFE + timedelta(days=1)
        ):
            text = _("A token must expire within 100 years, or never.")
            raise ValidationError({"expires_at": ValidationError(text, code="out_of_range")})
        ended = type(self)._base_manager.filter(pk=self.pk, expires_at__lte=now)
        if not self._state.adding and ended.exclude(expires_at=end).exists():
            text = _("This token has expired or was revoked. Make a new one.")
            raise ValidationError({"expires_at": ValidationError(text, code="ended")})

    # loaddata gets here, too.
    def _do_update(self, base_qs: Any, using: Any, pk_val: Any, values: Any, *args: Any) -> Any:
        ended = Q(expires_at__lte=timezone.now())
        final = [
            (field, model, Case(When(ended, then=F(field.name)), default=Value(value, field)))
            if field.name == "expires_at"
            else (field, model, value)
            for field, model, value in values
        ]
        return super()._do_update(base_qs, using, pk_val, final, *args)
