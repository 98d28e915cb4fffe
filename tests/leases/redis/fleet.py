"""Many holders of worker ids, each with a registry of its own, and an account of their ticks."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from typing import ClassVar

from django_idgen.core.errors import LeaseLost
from django_idgen.core.lease import Lease, Namespace
from django_idgen.leases.redis.registry import RedisLeases
from django_idgen.models import NamespaceRecord
from django_idgen.testing.contracts import EPOCH_US, Claims, DrivenTime
from tests.tiers import LONG

WINDOW = 1000
STRIDE = 2 * WINDOW
HOLDERS = 64 if LONG else 16
SHOP = Namespace(
    "shop",
    epoch_us=EPOCH_US,
    tick_us=1000,
    max_ticks=2**41,
    workers=range(2 * HOLDERS),
    window_ticks=WINDOW,
    skew_ticks=50,
    fingerprint={"layout": [["time", 41], ["worker", 10], ["sequence", 12]], "registry": "redis"},
)


def new_space(**changes: object) -> Namespace:
    """A namespace of the test's own."""
    return replace(SHOP, name=f"shop-{secrets.token_hex(4)}", **changes)  # type: ignore[arg-type]


@dataclass
class Holder:
    """One process: it walks its window, renews, and takes a new lease when the old one is lost."""

    name: str
    registry: RedisLeases
    fleet: Fleet
    lease: Lease | None = None
    last: int = -1
    """The last tick that it stamped."""

    def start(self) -> None:
        """Take a (new) lease, past what it stamped so far."""
        now = self.fleet.now
        lease = self.registry.acquire(holder=self.name, not_before=self.last + 1).lease
        self.lease = self.fleet.claims.granted(lease)
        self.fleet.ahead.append(lease.start - max(now, self.last + 1))

    def renew(self) -> bool:
        """Renew; False if the lease is lost: the rest of the window stays its own."""
        assert self.lease is not None
        self.last = max(self.last, min(self.fleet.now, self.lease.until - 1), self.lease.start)
        try:
            renewed = self.registry.renew(self.lease, last_tick=self.last).lease
        except LeaseLost:
            return False
        self.lease = self.fleet.claims.granted(renewed)
        return True

    def go_on(self) -> None:
        """What a generator does when its window is due: renew, else acquire anew."""
        if self.lease is None or not self.renew():
            if self.lease is not None:
                self.last = max(self.last, self.lease.until - 1)
            self.start()

    def stop(self) -> None:
        lease, self.lease = self.lease, None
        assert lease is not None
        self.last = max(self.last, lease.start)
        self.fleet.claims.given_back(lease, self.last)
        if not self.registry.release(lease, last_tick=self.last):
            self.fleet.claims.granted(lease)


@dataclass
class Fleet:
    """Holders on one namespace, on a clock driven by hand."""

    size: ClassVar[int] = HOLDERS
    early: ClassVar[int] = 0
    """How many ticks past now a lease may begin, though nothing was lost."""
    alias: str
    database: str
    space: Namespace = field(default_factory=new_space)
    time: DrivenTime = field(default_factory=DrivenTime)
    claims: Claims = field(default_factory=Claims)
    ahead: list[int] = field(default_factory=list)
    """How far past now each lease began, in ticks."""
    holders: list[Holder] = field(default_factory=list)

    @property
    def now(self) -> int:
        return self.space.tick_at(self.time.now_us)

    def registry(self, alias: str | None = None, **options: object) -> RedisLeases:
        given = {"timeout": 60.0, "read_now_us": self.time.read, **options}
        return RedisLeases(
            self.space,
            alias=alias or self.alias,
            database=self.database,
            **given,  # type: ignore[arg-type]
        )

    def holder(self, alias: str | None = None, **options: object) -> Holder:
        """One more holder, not started yet."""
        made = Holder(f"holder {len(self.holders)}", self.registry(alias, **options), self)
        self.holders.append(made)
        return made

    def hire(self, count: int | None = None) -> list[Holder]:
        """So many more holders, started."""
        made = [self.holder() for _ in range(self.size if count is None else count)]
        for holder in made:
            holder.start()
        return made

    def work(self, count: int | None = None) -> None:
        """Some holders that have just started, some that renewed, some that have left."""
        holders = self.hire(count)
        self.pass_ticks(WINDOW // 3)
        for holder in holders[::2]:
            assert holder.renew()
        for holder in holders[::5]:
            holder.stop()
        self.holders = [holder for holder in self.holders if holder.lease is not None]

    def go_on(self, times: int = 1, ticks: int = 0) -> None:
        """So often all holders go on, after so many ticks each time."""
        for _ in range(times):
            self.pass_ticks(ticks)
            for holder in self.holders:
                holder.go_on()

    def settle(self, *, ahead: int = STRIDE + WINDOW) -> None:
        """Everybody goes on, long enough for stamps to have fallen back in line."""
        self.go_on(6, 800)
        self.holder().start()
        assert 0 <= self.ahead[-1] <= self.early
        self.check(ahead=ahead)

    def generations(self) -> set[int]:
        """Those of the leases that are held."""
        return {holder.lease.generation for holder in self.holders if holder.lease}

    def check_past(self, before: list[Holder], newcomers: list[Holder]) -> None:
        """What newcomers were lent begins at or after the windows of those who came before."""
        highest = max(holder.lease.until for holder in before if holder.lease)
        assert min(holder.lease.start for holder in newcomers if holder.lease) >= highest

    def pass_ticks(self, ticks: int) -> None:
        self.time.pass_ticks(ticks)

    def check(self, *, ahead: int = STRIDE + WINDOW) -> int:
        """No (worker id, tick) twice; returns how far ahead a lease began, at most ``ahead``."""
        self.claims.check()
        furthest = max(self.ahead)
        assert furthest <= ahead
        return furthest

    def check_ceiling(self) -> int:
        """The ceiling that the database has lent, which no lease reaches past."""
        record = NamespaceRecord.objects.using(self.database).get(pk=self.space.name)
        assert self.claims.highest() <= record.ceiling
        return record.ceiling

    def close(self) -> None:
        for holder in self.holders:
            holder.registry.close()
