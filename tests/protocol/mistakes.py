"""Mistakes: the rules of the protocol, each left out of a model in its turn."""

from __future__ import annotations

from dataclasses import dataclass

from .models import Model

LEASES = Model("leases", "leases.pml", ("TICKS=4",))
TAKEOVER = Model(
    "leases, a takeover",
    "leases.pml",
    ("TICKS=3", "WINDOW=1", "STEPS_BACK=0", "TAKEOVERS=1"),
    is_long=True,
)
SUB_LEASES = Model("sub-leases", "sub_leases.pml", ("TICKS=3", "LOSSES=1", "HOLDERS=1"))
SEGMENTS = Model("segments", "segments.pml", ("IDS=6",))
LEASES_GO_ON = Model("leases, progress", "leases.pml", ("TICKS=3", "PROGRESS"))
SUB_LEASES_GO_ON = Model(
    "sub-leases, progress",
    "sub_leases.pml",
    ("TICKS=3", "LOSSES=1", "HOLDERS=1", "PROGRESS"),
    is_long=True,
)

MODELS = (
    LEASES,
    Model(
        "leases, a takeover, one holder",
        "leases.pml",
        ("TICKS=3", "WINDOW=1", "STEPS_BACK=0", "TAKEOVERS=1", "HOLDERS=1"),
    ),
    TAKEOVER,
    SUB_LEASES,
    SEGMENTS,
    LEASES_GO_ON,
    SUB_LEASES_GO_ON,
    Model("leases, more ticks", "leases.pml", ("TICKS=5",), is_long=True),
    Model("leases, three holders", "leases.pml", ("TICKS=3", "HOLDERS=3"), is_long=True),
    Model(
        "leases, progress after a takeover",
        "leases.pml",
        ("TICKS=4", "WINDOW=1", "STEPS_BACK=0", "TAKEOVERS=1", "HOLDERS=1", "PROGRESS"),
        is_long=True,
    ),
    Model("sub-leases, two holders", "sub_leases.pml", ("TICKS=3", "LOSSES=1"), is_long=True),
    Model(
        "sub-leases, two losses",
        "sub_leases.pml",
        ("TICKS=3", "LOSSES=2", "HOLDERS=1"),
        is_long=True,
    ),
    Model("segments, more ids", "segments.pml", ("IDS=8",), is_long=True),
    Model(
        "segments, two takeovers",
        "segments.pml",
        ("IDS=8", "TAKEOVERS=2", "LOSSES=0"),
        is_long=True,
    ),
)


@dataclass(frozen=True, slots=True)
class Mistake:
    """One rule left out. Frozen."""

    name: str
    rule: str
    model: Model
    old: str
    """A text of the model that occurs once."""
    new: str

    def text(self) -> str:
        """The model with the mistake in it."""
        text = self.model.text()
        count = text.count(self.old)
        assert count == 1, f"The old text of {self.name!r} occurs {count} times."
        return text.replace(self.old, self.new)


MISTAKES = (
    Mistake(
        "a window starts before the end of the last one",
        "L1",
        LEASES,
        "start = MAX(MAX(now, db.until), MAX(db.fence, request.next))",
        "start = MAX(now, MAX(db.fence, request.next))",
    ),
    Mistake(
        "a renewal lowers the mark when the clock went back",
        "L2",
        LEASES,
        "db.until = MAX(db.until, MIN(latest + WINDOW, TICKS))",
        "db.until = MIN(latest + WINDOW, TICKS)",
    ),
    Mistake(
        "a process renews the lease of another",
        "L2",
        LEASES,
        "(request.token != NONE && db.token == request.token && db.start == request.start",
        "(request.token != NONE && db.token != NONE",
    ),
    Mistake(
        "a holder goes on after its release",
        "L3",
        LEASES,
        "ask(p, release); close(p)",
        "ask(p, release)",
    ),
    Mistake(
        "a release frees what its holder has stamped ahead of the time",
        "L3",
        LEASES,
        "db.until = MIN(db.until, MAX(db.start, request.next))",
        "db.until = MAX(db.start, MIN(now, db.until))",
    ),
    Mistake(
        "the end of a window is stamped, too",
        "L5",
        LEASES,
        "#define LAST(p) (lease[p].until - 1)",
        "#define LAST(p) MIN(lease[p].until, TICKS - 1)",
    ),
    Mistake(
        "a server that took over goes on as the one before",
        "L7",
        TAKEOVER,
        ":: db.server != server ->",
        ":: false ->",
    ),
    Mistake(
        "the fence leaves out the window", "L7", TAKEOVER, "now + SKEW) + WINDOW", "now + SKEW)"
    ),
    Mistake(
        "the fence leaves out the skew", "L7", TAKEOVER, "now + SKEW) + WINDOW", "now) + WINDOW"
    ),
    Mistake(
        "a lease of before the loss is renewed",
        "L7",
        TAKEOVER,
        "&& db.current == request.generation)",
        ")",
    ),
    Mistake(
        "a window ends past the ceiling",
        "L6",
        SUB_LEASES,
        "until = MIN(start + WINDOW, hash[s].lent.ceiling);",
        "until = MIN(start + WINDOW, TICKS);",
    ),
    Mistake(
        "a new generation begins at the time, not at the ceiling",
        "L6",
        SUB_LEASES,
        "root.fence = MAX(root.fence, MAX(root.ceiling, now));",
        "root.fence = MAX(root.fence, now);",
    ),
    Mistake(
        "a sub-lease is installed in another life",
        "L6",
        SUB_LEASES,
        ":: hash[s].whole && hash[s].lent.life == sub_lease.life ->",
        ":: hash[s].whole ->",
    ),
    Mistake(
        "a promoted replica goes on as the primary that it followed",
        "L6",
        SUB_LEASES,
        "copy_hash(s, 1 - s); hash[s].whole = false",
        "copy_hash(s, 1 - s); hash[s].whole = hash[1 - s].whole",
    ),
    Mistake(
        "an expired lease is free only when it is released",
        "L1, progress",
        LEASES_GO_ON,
        "#define IS_FREE (db.token == NONE || now >= db.until ||",
        "#define IS_FREE (db.token == NONE ||",
    ),
    Mistake(
        "a ceiling that was raised is not installed",
        "L6, progress",
        SUB_LEASES_GO_ON,
        "            hash[s].lent.ceiling = MAX(hash[s].lent.ceiling, sub_lease.ceiling)",
        "            skip",
    ),
    Mistake(
        "nothing is skipped after a failover",
        "section 3",
        SEGMENTS,
        "recorded = server; max_id = max_id + MOST_LOST * STEP",
        "recorded = server",
    ),
    Mistake(
        "a push is sent again when its answer is lost",
        "L4",
        SEGMENTS,
        "        pushing = 0     /*",
        "        if\n        :: pushing = 0\n        :: true\n        fi      /*",
    ),
    Mistake(
        "a pool of an earlier life is used",
        "section 3",
        SEGMENTS,
        "pooled[id] == life + 1 && id",
        "pooled[id] && id",
    ),
    Mistake(
        "the pool gives ids below the floor",
        "section 3",
        SEGMENTS,
        "life + 1 && id >= floor[p]",
        "life + 1",
    ),
    Mistake(
        "a process gives back what it goes on using",
        "section 3",
        SEGMENTS,
        "id = has[p] - 1; has[p] = 0;\n        if",
        "id = has[p] - 1;\n        if",
    ),
    Mistake(
        "a grant whose answer was lost is taken back",
        "L4",
        SEGMENTS,
        "        :: true                             /* the answer is lost (L4) */",
        "        :: max_id = max_id - STEP; take(start)",
    ),
)
