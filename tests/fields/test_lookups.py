"""``id__created``: which rows it finds, what it shows, and that an index serves it."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from itertools import product
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core.exceptions import FieldError, ValidationError
from django.db import NotSupportedError, connections, models
from django.db.models import Count, ExpressionWrapper, F, Max, OuterRef, Q, Subquery
from django.db.models.functions import Now, TruncDay
from django.test import override_settings
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from django_idgen import generators
from django_idgen.core.clock import MAX_UNIX_US, moment
from django_idgen.core.errors import LayoutError
from django_idgen.core.layout import PRESETS, BitLayout, parse_layout
from django_idgen.fields.lookups import CreatedDate, last_id, span
from tests import servers
from tests.app.models import Bill, Customer, Folder, Invoice, Line, Order, Purchase, Sheet
from tests.core.test_layout import layouts
from tests.places import on_every_database

pytestmark = on_every_database

STANDARD = parse_layout("standard")
TICK = timedelta(milliseconds=1)
STEP = timedelta(microseconds=1)
START = datetime(2025, 3, 1, 12, tzinfo=UTC)
EVE = datetime(2025, 12, 24, tzinfo=UTC)
DAY = timedelta(days=1)
COMPARISONS = {
    "exact": operator.eq,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
YEARS = [datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]


def id_at(when: datetime, sequence: int = 0) -> int:
    return STANDARD.min_id_at(when) + sequence


def created(value: int) -> datetime:
    return generators["default"].decode(value).created


def layout_settings(layout: Any, epoch: str = "2025-01-01T00:00:00Z") -> Any:
    return override_settings(
        IDGEN={"GENERATORS": {"default": {"LAYOUT": layout, "EPOCH": epoch, "NAMESPACE": "x"}}}
    )


@pytest.fixture
def orders(alias: str) -> dict[int, datetime]:
    """Orders made around a few ticks, and far from them: ids and their moments."""
    moments = [START - timedelta(days=50), START - TICK, START, START + TICK]
    moments += [START + timedelta(days=days) for days in (1, 30, 400)]
    moments[0] = datetime(2025, 1, 1, tzinfo=UTC)
    # By turns the first and the last id of a tick.
    edges = (STANDARD.min_id_at, STANDARD.max_id_at)
    made = [edges[n % 2](when) for n, when in enumerate(moments)]
    Order.objects.using(alias).bulk_create([Order(pk=pk) for pk in made])
    return {pk: created(pk) for pk in made}


# --- exactness ------------------------------------------------------------------


@st.composite
def ordered_layouts(draw: st.DrawFn) -> BitLayout:
    return draw(layouts().filter(lambda layout: layout.time_is_top))


@given(ordered_layouts(), st.data())
def test_ids_compare_as_their_moments(layout: BitLayout, data: st.DataObject) -> None:
    """In every layout with time on top: ``id >= first`` says ``created >= t``, and so on."""
    value = data.draw(st.integers(1, last_id(layout)))
    below = (1 << layout.time_shift) - 1
    value = data.draw(st.sampled_from([value, max(1, value & ~below), value | below]))
    made = layout.unpack(value).created
    near = st.integers(-2 * layout.tick_us, 2 * layout.tick_us).map(
        lambda us: moment(0) + min(max(made - moment(0) + us * STEP, timedelta(0)), _LIMIT)
    )
    when = data.draw(near | st.datetimes(timezones=st.just(UTC)) | st.sampled_from(YEARS))
    first, after = span(layout, when)
    assert (value >= first) == (made >= when)
    assert (value >= after) == (made > when)


_LIMIT = moment(MAX_UNIX_US) - moment(0)


def test_a_query_agrees_with_decode(alias: str, orders: dict[int, datetime]) -> None:
    """At the start of a tick, inside one, at its end, before the epoch and past the end."""
    rows = Order.objects.using(alias)
    moments = [made + offset for made in orders.values() for offset in (-STEP, 0 * STEP, STEP)]
    moments += [*YEARS, datetime(2100, 1, 1, tzinfo=UTC)]
    for (name, compare), when in product(COMPARISONS.items(), moments):
        look_up = {f"id__created__{name}": when}
        found = rows.filter(**look_up).values_list("pk", flat=True)
        assert set(found) == {pk for pk, made in orders.items() if compare(made, when)}, look_up
        assert rows.exclude(**look_up).count() == len(orders) - len(found)


def test_every_layout_with_time_on_top() -> None:
    """Also where the worker stands last, and ids have 53 bits."""
    for layout in (*PRESETS, {"time": 40, "sequence": 8, "worker": 8}):
        with layout_settings(layout):
            generator = generators["default"]
            made = Order.objects.bulk_create([Order() for _ in range(3)])
            for order in made:
                when = generator.decode(order.pk).created
                row = Order.objects.filter(pk=order.pk)
                assert row.filter(id__created=when).exists()
                assert row.get(id__created__range=(when, when)) == order
                assert not row.filter(id__created__gt=when).exists()
                assert row.values("id__created").get()["id__created"] == when


def test_range_and_in(alias: str, orders: dict[int, datetime]) -> None:
    """Both ends of a range are in it; of ``in``, every moment counts."""
    rows = Order.objects.using(alias)
    first, second, third, *_ = made = sorted(orders.values())
    assert rows.filter(id__created__range=(second, third)).count() == 2
    assert rows.filter(id__created__range=(third, second)).count() == 0
    assert rows.filter(id__created__range=(None, third)).count() == 0
    assert rows.filter(id__created__in=[first, third, None]).count() == 2
    assert rows.filter(id__created__in=iter(made)).count() == len(made)
    assert rows.filter(id__created__in=[]).count() == 0
    assert rows.exclude(id__created__in=[first]).count() == len(made) - 1
    assert rows.filter(id__created__in=rows.values("id__created")).count() == len(made)


def test_days_and_years(alias: str, orders: dict[int, datetime]) -> None:
    """Of the current time zone, with every comparison, at both ends of time."""
    rows = Order.objects.using(alias)
    with timezone.override(ZoneInfo("Pacific/Kiritimati")):  # 14 hours before UTC
        local = [timezone.localtime(made) for made in orders.values()]
        for name, compare in COMPARISONS.items():
            for day in (date(2025, 3, 2), date(2025, 1, 1), date.min, date.max):
                expected = sum(compare(made.date(), day) for made in local)
                assert rows.filter(**{f"id__created__date__{name}": day}).count() == expected
            for year in (2025, 2026, 1, 0, -5, 9999, 10_000):
                expected = sum(compare(made.year, year) for made in local)
                assert rows.filter(**{f"id__created__year__{name}": year}).count() == expected
                expected = sum(compare(made.isocalendar().year, year) for made in local)
                assert rows.filter(**{f"id__created__iso_year__{name}": year}).count() == expected
    assert rows.filter(id__created__date=START.date()).count() == 3
    assert rows.filter(id__created__year__in=[2025, 2026]).count() == len(orders)


def test_days_that_do_not_begin_at_midnight() -> None:
    """Where clocks change at midnight, or a day was left out, each moment is in its own day."""
    layout = parse_layout("standard", epoch="2010-01-01T00:00:00Z")
    moments = [datetime(2011, 1, 1, tzinfo=UTC) + timedelta(minutes=30 * n) for n in range(17_600)]
    part = CreatedDate(F("id"))
    for zone in ("America/Havana", "America/Sao_Paulo", "Pacific/Apia"):
        with layout_settings("standard", "2010-01-01T00:00:00Z"), timezone.override(ZoneInfo(zone)):
            days = [timezone.localtime(when).date() for when in moments]
            spans = {day: part.span(layout, day) for day in set(days)}
        for when, day in zip(moments, days, strict=True):
            first, after = spans[day]
            assert first <= layout.min_id_at(when) < after, (zone, when, day)


# --- values ---------------------------------------------------------------------


def test_values_are_read_as_django_reads_them(alias: str) -> None:
    """As for any ``DateTimeField``; what is no moment is an error that says so."""
    rows = Order.objects.using(alias)
    order = rows.create(pk=id_at(START))
    assert rows.filter(id__created=START.isoformat()).count() == 1
    assert rows.filter(id__created__gte="2025-03-01 13:00+01:00").count() == 1
    assert rows.filter(id__created__date="2025-03-01").count() == 1
    with pytest.warns(RuntimeWarning, match="naive datetime"):
        assert rows.get(id__created=START.replace(tzinfo=None)) == order
    for wrong in ("soon", "", "2025-13-01", "\x00"):
        with pytest.raises(ValidationError):
            rows.filter(id__created__gte=wrong)
    with pytest.raises(ValueError, match="None"):
        rows.filter(id__created__gte=None)


def test_without_time_zones_moments_are_local() -> None:
    """``USE_TZ = False``: naive in and naive out, in the default time zone."""
    with override_settings(USE_TZ=False, TIME_ZONE="Asia/Kolkata"):
        Order.objects.create(pk=id_at(START))
        local = START.astimezone(ZoneInfo("Asia/Kolkata")).replace(tzinfo=None)
        assert Order.objects.values_list("id__created", flat=True).get() == local
        assert Order.objects.filter(id__created=local).exists()
        assert Order.objects.filter(id__created=START).exists()
        assert not Order.objects.filter(id__created__lt=local).exists()
        assert Order.objects.filter(id__created__date=local.date()).exists()


def test_every_microsecond_is_shown(alias: str) -> None:
    """As text in SQLite, too, in the way in which Django writes a column's."""
    bits = {"time": 50, "worker": 5, "sequence": 8, "tick": 0.001001}
    layout = parse_layout(bits)
    starts = (0, 10**9, layout.max_ticks // 5)
    ticks = [start + us for start in starts for us in (0, 1, 500_000, 999_999)]
    values = [layout.pack(tick, 1, 1) for tick in ticks]
    with layout_settings(bits):
        rows = Order.objects.using(alias)
        rows.bulk_create([Order(pk=value) for value in values])
        shown = dict(rows.values_list("pk", "id__created"))
    assert shown == {value: layout.unpack(value).created for value in values}


def test_the_end_of_the_year_9999(alias: str) -> None:
    """Ticks past it have no moment: NULL, and never an error of the database."""
    layout = parse_layout({"time": 45, "worker": 5, "sequence": 5, "tick": 10})
    with layout_settings({"time": 45, "worker": 5, "sequence": 5, "tick": 10}):
        rows = Order.objects.using(alias)
        rows.create(pk=last_id(layout))
        rows.create(pk=last_id(layout) + 1)
        rows.create(pk=2**62)
        shown = dict(rows.values_list("pk", "id__created"))
        assert shown.pop(last_id(layout)) == layout.unpack(last_id(layout)).created
        assert set(shown.values()) == {None}
        assert rows.filter(id__created__isnull=True).count() == 2
        assert rows.filter(id__created__gte=START).count() == 1
        assert rows.exclude(id__created__gte=START).count() == 2


# --- as an expression -----------------------------------------------------------


def test_it_is_shown_ordered_and_grouped_by(alias: str, orders: dict[int, datetime]) -> None:
    """``values``, ``annotate``, ``order_by``, ``F``, ``Trunc``, aggregates and subqueries."""
    rows = Order.objects.using(alias)
    assert dict(rows.values_list("pk", "id__created")) == orders
    latest = rows.order_by("-id__created").values_list("id__created", flat=True)
    assert list(latest) == sorted(orders.values(), reverse=True)
    days = rows.annotate(day=TruncDay("id__created")).values("day").annotate(n=Count("pk"))
    assert sum(row["n"] for row in days) == len(orders)
    assert {row["day"].date() for row in days} == {made.date() for made in orders.values()}
    again = rows.values("id__created").annotate(n=Count("pk")).order_by("id__created")
    assert [row["n"] for row in again] == [1] * len(orders)
    assert rows.aggregate(last=Max("id__created"))["last"] == max(orders.values())
    assert rows.annotate(last=Max("id")).filter(last__created__gte=START).count() == 5
    assert rows.filter(id__created=F("id__created"), id__created__lt=Now()).count() >= 5
    newest = rows.filter(pk=OuterRef("pk")).values("id__created")
    assert rows.annotate(made=Subquery(newest)).filter(made__gte=START).count() == 5
    assert rows.filter(id__created__month=3, id__created__hour=12).exists()
    assert rows.datetimes("id__created", "year").count() >= 2


def test_it_compares_with_a_column(alias: str) -> None:
    """Worked out row by row; equal moments are equal in each database's own writing."""
    purchase = Purchase.objects.using(alias).create(
        pk=id_at(START), customer=Customer.objects.using(alias).create()
    )
    bills = Bill.objects.using(alias)
    on_time = bills.create(purchase=purchase, paid_at=START)
    late = bills.create(purchase=purchase, paid_at=START + timedelta(microseconds=1))
    assert list(bills.filter(purchase__id__created=F("paid_at"))) == [on_time]
    assert list(bills.filter(paid_at__gt=F("purchase__id__created"))) == [late]
    assert bills.filter(purchase__id__created__range=(START, F("paid_at"))).count() == 2


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
@pytest.mark.parametrize("name", ["default", "mariadb"])
def test_a_database_in_a_time_zone(name: str, zone: str) -> None:
    """Moments are written as the database keeps them, so that they compare with a column."""
    if name != "default":
        servers.require(name)
    with _kept_in(name, zone) as connection:
        customer = Customer.objects.using(name).create()
        purchase = Purchase.objects.using(name).create(pk=id_at(START), customer=customer)
        bill = Bill.objects.using(name).create(purchase=purchase, paid_at=START)
        bills = Bill.objects.using(name).filter(purchase__id__created=F("paid_at"))
        if name == "mariadb" and not connection.features.has_zoneinfo_database:
            with pytest.raises(NotSupportedError, match="mysql_tzinfo_to_sql"):
                bills.exists()
        else:
            assert bills.get() == bill
            shown = Purchase.objects.using(name).values_list("id__created", flat=True)
            assert shown.get() == START
        # A moment that is known needs no database for it.
        assert Purchase.objects.using(name).get(id__created=START) == purchase


@contextmanager
def _kept_in(name: str, zone: str) -> Iterator[Any]:
    connection = connections[name]
    before = connection.settings_dict["TIME_ZONE"]
    _keep_in(connection, zone)
    try:
        yield connection
    finally:
        _keep_in(connection, before)


def _keep_in(connection: Any, zone: str | None) -> None:
    connection.settings_dict["TIME_ZONE"] = zone
    for known in ("timezone", "timezone_name"):
        connection.__dict__.pop(known, None)


# --- relations, and other places for the field ------------------------------------


def test_through_relations(alias: str) -> None:
    """Forwards, backwards, through many-to-many tables, negated and in ``Q``."""
    order = Order.objects.using(alias).create(pk=id_at(START))
    line = Line.objects.using(alias).create(order=order)
    old = Line.objects.using(alias).create(order=Order.objects.using(alias).create(pk=1 << 22))
    lines = Line.objects.using(alias)
    later = START + TICK
    assert list(lines.filter(order__id__created__gte=START)) == [line]
    assert list(lines.filter(order__pk__created__gte=START)) == [line]
    assert list(lines.exclude(order__id__created__gte=START)) == [old]
    assert list(lines.filter(~Q(order__id__created=START) | Q(pk=line.pk, pk__in=[]))) == [old]
    orders = Order.objects.using(alias)
    assert list(orders.filter(lines__order__id__created__range=(START, later))) == [order]
    customer = Customer.objects.using(alias).create(pk=id_at(START))
    purchase = Purchase.objects.using(alias).create(customer=customer)
    purchase.watchers.add(customer)
    purchases = Purchase.objects.using(alias)
    assert purchases.filter(watchers__id__created__date=START.date()).count() == 1
    assert purchases.filter(watchers__id__created__gt=START).count() == 0
    customers = Customer.objects.using(alias)
    assert customers.filter(purchases__id__created__gte=START).count() == 1
    assert customers.exclude(purchases__id__created__gte=START).count() == 0


def test_off_the_key_null_and_in_a_composite_key(alias: str) -> None:
    """NULL has no moment: it is in no comparison, and in every negated one."""
    customer = Customer.objects.using(alias).create()
    purchases = Purchase.objects.using(alias)
    known = purchases.create(customer=customer, stamp=id_at(START))
    unknown = purchases.create(customer=customer)
    purchases.filter(pk=unknown.pk).update(stamp=None)
    assert list(purchases.filter(stamp__created=START)) == [known]
    assert list(purchases.filter(stamp__created__gte=YEARS[0])) == [known]
    assert list(purchases.filter(stamp__created__lte=YEARS[1])) == [known]
    assert list(purchases.exclude(stamp__created__gte=YEARS[0])) == [unknown]
    assert set(purchases.exclude(stamp__created__gte=YEARS[1])) == {known, unknown}
    assert list(purchases.filter(stamp__created=None)) == [unknown]
    assert list(purchases.filter(stamp__created__isnull=False)) == [known]
    assert dict(purchases.values_list("pk", "stamp__created"))[unknown.pk] is None
    folder = Folder.objects.using(alias).create()
    sheet = Sheet.objects.using(alias).create(folder=folder, number=id_at(START))
    assert Sheet.objects.using(alias).get(number__created=START).pk == sheet.pk
    assert Sheet.objects.using(alias).filter(number__created__lt=START).count() == 0


def test_a_segment_id_holds_no_moment() -> None:
    """Django's own error for a look-up that there isn't."""
    with pytest.raises(FieldError, match="created"):
        Invoice.objects.filter(id__created__gte=START)


def test_a_layout_that_is_not_ordered_by_time(alias: str) -> None:
    """Refused when the query is made, with the way out, which works."""
    with layout_settings({"worker": 4, "time": 41, "sequence": 12}):
        rows = Order.objects.using(alias)
        order = rows.create()
        made = generators["default"].decode(order.pk).created
        for look_up in ("gte", "exact", "date", "year__lt"):
            value = {"date": made.date(), "year__lt": 2025}.get(look_up, made)
            with pytest.raises(LayoutError, match=r"not ordered by time.*annotate"):
                rows.filter(**{f"id__created__{look_up}": value})
        assert rows.values_list("id__created", flat=True).get() == made
        every = rows.annotate(made=ExpressionWrapper(F("id__created"), models.DateTimeField()))
        assert every.filter(made__gte=made, made__lte=made).get() == order
        assert not every.filter(made__gt=made).exists()


# --- indexes --------------------------------------------------------------------


def uses_index(rows: Any) -> bool:
    plan = rows.explain()
    vendor = connections[rows.db].vendor
    if vendor == "postgresql":
        return "Index Cond" in plan and "Seq Scan" not in plan
    if vendor == "mysql":
        return " range " in plan and " ALL " not in plan
    return "SEARCH" in plan and "SCAN" not in plan


LOOK_UPS: list[dict[str, Any]] = [
    {"id__created": EVE},
    {"id__created__lt": EVE + DAY},
    {"id__created__gte": EVE + 384 * DAY},
    {"id__created__range": (EVE, EVE + DAY)},
    {"id__created__in": [EVE, EVE + DAY]},
    {"id__created__date": EVE.date()},
    {"id__created__year": 2025},
    {"id__created__year__lt": 2026},
    {"id__created__year__gt": 2026},
]


def test_an_index_serves_comparisons(alias: str) -> None:
    """EXPLAIN names no scan of the whole table. A foreign key's own column serves, without a join.

    There are so many rows that the index is worth it.
    """
    customer = Customer.objects.using(alias).create(pk=id_at(START))
    moments = [EVE + n * timedelta(hours=3, minutes=5) for n in range(3000)]  # until January 2027
    made = [Purchase(pk=id_at(when), customer=customer) for when in moments]
    Purchase.objects.using(alias).bulk_create(made)
    bills = [Bill(pk=n, purchase=row) for n, row in enumerate(made, 1)]
    Bill.objects.using(alias).bulk_create(bills)
    if connections[alias].vendor != "mysql":  # where it would commit
        with connections[alias].cursor() as cursor:
            cursor.execute(f"ANALYZE {Purchase._meta.db_table}")
            cursor.execute(f"ANALYZE {Bill._meta.db_table}")
    for look_up in LOOK_UPS:
        rows = Purchase.objects.using(alias).filter(**look_up)
        assert 0 < rows.count() < 100, look_up
        assert uses_index(rows), (look_up, rows.explain())
    assert not uses_index(Purchase.objects.using(alias).filter(note="x"))
    related = Bill.objects.using(alias).filter(purchase__id__created__range=(EVE, EVE + DAY))
    assert "JOIN" not in str(related.query)
    assert uses_index(related), related.explain()
    assert related.count() == 8
