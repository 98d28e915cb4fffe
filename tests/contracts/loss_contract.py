"""What every registry that can forget must do, whatever it or its database forgets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_idgen.core.errors import RegistryUnavailable
from django_idgen.models import Installation, NamespaceRecord
from tests.leases.redis.fleet import STRIDE, WINDOW, Fleet
from tests.server_tools import unreachable


def forget_rows(fleet: Fleet) -> None:
    NamespaceRecord.objects.using(fleet.database).all().delete()


def forget_everything(fleet: Fleet) -> None:
    forget_rows(fleet)
    Installation.objects.using(fleet.database).all().delete()


def another_server(fleet: Fleet) -> None:
    NamespaceRecord.objects.using(fleet.database).update(server="another server")


class LossContract:
    """Subclass it, name it ``Test...``, beside the fixtures ``fleet``, ``loss`` and ``losses``.

    ``loss`` is each way for the registry to lose all or some of what it knows; ``losses`` are
    two of which nothing is left.
    """

    outlives_its_installation = True
    """Whether running processes go on at once where the database's identity is lost with it."""

    def test_what_was_forgotten_is_not_lent_again(
        self, fleet: Fleet, loss: Callable[[], object]
    ) -> None:
        """All holders lose their leases at once and go on past the fence; newcomers start there."""
        fleet.work()
        before = list(fleet.holders)
        loss()
        newcomers = fleet.hire(fleet.size // 2)
        fleet.check_past(before, newcomers)
        for holder in before:
            assert holder.lease is not None
            assert not holder.renew()
            assert not holder.registry.release(holder.lease, last_tick=holder.lease.start)
            holder.go_on()
        assert fleet.generations() == {2}
        assert fleet.check() > 0
        fleet.settle()

    def test_two_losses_within_a_window(
        self, fleet: Fleet, losses: list[Callable[[], object]]
    ) -> None:
        """The second loss comes before anybody is back in line (hazard 49)."""
        fleet.work()
        losses[0]()
        fleet.hire(fleet.size // 4)
        for holder in fleet.holders[::2]:
            holder.go_on()
        fleet.pass_ticks(WINDOW // 5)
        losses[1]()
        fleet.hire(fleet.size // 4)
        fleet.go_on()
        furthest = 2 * (STRIDE + WINDOW)
        assert fleet.check(ahead=furthest) > STRIDE
        for _ in range(2):
            fleet.settle(ahead=furthest)

    def test_waiting_after_a_loss(self, fleet: Fleet, losses: list[Callable[[], object]]) -> None:
        """after_loss="wait": nothing is lent until the fence has passed, and no stamp is ahead."""
        waiting = [fleet.holder(after_loss="wait") for _ in range(4)]
        for holder in waiting:
            holder.start()
            holder.registry._limit = 0.5  # from here on: the first use makes tables
        losses[0]()
        for holder in waiting:
            assert not holder.renew()
            with pytest.raises(RegistryUnavailable, match=r"lends again in 2\.0 s"):
                holder.start()
        fleet.pass_ticks(STRIDE + fleet.early)
        for holder in waiting:
            holder.start()
        fleet.check(ahead=fleet.early)

    # --- the database -------------------------------------------------------

    def test_the_database_may_be_away_for_a_stride(self, fleet: Fleet) -> None:
        """Renewals and new leases do without it until the ceiling; then the error names it."""
        holders = fleet.hire(4)
        with unreachable(fleet.database):
            for _ in range(4):
                fleet.pass_ticks(WINDOW // 4)
                assert all(holder.renew() for holder in holders)
                holders[3].stop()
                holders[3].start()
            words = ""
            for _ in range(4 * STRIDE // WINDOW):
                fleet.pass_ticks(WINDOW // 4)
                try:
                    holders[0].renew()
                except RegistryUnavailable as error:
                    words = str(error)
                    break
            assert "has not lent it more: Database 'postgres'" in words
        assert holders[0].lease is not None
        # All that was lent lies below the ceiling, and is used up.
        assert holders[0].lease.until == fleet.check_ceiling()
        assert holders[0].renew()
        fleet.check(ahead=fleet.early)

    def test_a_ceiling_is_raised_about_once_in_a_sixth_of_the_stride(self, fleet: Fleet) -> None:
        """Holders that renew write to the database once a sixth of the stride, all together.

        It never falls, and no lease reaches past it.
        """
        holders = fleet.hire(8)
        ceilings = [fleet.check_ceiling()]
        for _ in range(24):
            fleet.pass_ticks(WINDOW // 12)
            assert all(holder.renew() for holder in holders)
            ceilings.append(fleet.check_ceiling())
        passed = 24 * (WINDOW // 12)
        assert ceilings == sorted(ceilings)
        assert len(set(ceilings)) - 1 <= passed / (STRIDE // 6) + 1
        assert fleet.check_ceiling() >= fleet.now + STRIDE - STRIDE // 6
        fleet.check(ahead=fleet.early)

    @pytest.mark.parametrize("forget", [forget_rows, forget_everything, another_server])
    @pytest.mark.parametrize("both", [False, True])
    def test_the_database_may_forget_too(
        self,
        fleet: Fleet,
        losses: list[Callable[[], object]],
        forget: Callable[[Fleet], None],
        both: bool,
    ) -> None:
        """L7: what a promoted database missed (raises, a whole generation) is not lent again."""
        if both and forget is forget_everything and not self.outlives_its_installation:
            return
        fleet.hire(6)
        (known,) = NamespaceRecord.objects.using(fleet.database).values()
        # What comes now the other server never heard of.
        losses[0]()
        fleet.go_on(6, WINDOW // 2)
        assert fleet.check_ceiling() > known["ceiling"]
        NamespaceRecord.objects.using(fleet.database).filter(pk=known.pop("name")).update(**known)
        forget(fleet)
        if both:
            losses[0]()
        fleet.hire(6)
        fleet.go_on(8, WINDOW // 2)
        assert fleet.check(ahead=10 * STRIDE) > 0
        assert len(fleet.generations()) <= 2
