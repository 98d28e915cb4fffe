/* The leases of one worker id in a database that may fail over: rules L1 to L5, and L7.
 *
 * With one worker id, all holders want the same ticks: the hardest case. A holder may pause for
 * any time between two of its steps. A request may be late or lost, an answer lost.
 * A comment names the function that a block stands for.
 */

#ifndef HOLDERS
#define HOLDERS 2
#endif
#ifndef TICKS
#define TICKS 6       /* all ticks that there are: 2**time_bits */
#endif
#ifndef WINDOW
#define WINDOW 2
#endif
#ifndef STEPS_BACK
#define STEPS_BACK 1  /* how often the registry's clock goes back, by any number of ticks */
#endif
#ifndef TAKEOVERS
#define TAKEOVERS 0   /* how often a server takes over that lacks the last writes */
#endif
#ifndef SKEW
#define SKEW 1        /* ticks by which its clock may be behind */
#endif

#ifdef PROGRESS
bool calm;
#define UNLESS_CALM provided (!calm)
#else
#define UNLESS_CALM
#endif

#define NONE 0
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define MIN(a, b) ((a) < (b) -> (a) : (b))

/* --- what a database stores: core.lease.Mark and core.book.Record ----------------------- */

typedef Stored {
    byte token; byte start; byte until; byte generation;
    byte current; byte fence; byte highest; byte server
}
Stored db;
Stored replica, blank;
byte server;          /* which one answers: db.dialects.server_identity */
byte now;             /* its clock, in ticks */
byte steps_back = STEPS_BACK;
byte takeovers = TAKEOVERS, copies = TAKEOVERS;
byte handed_on;

inline copy(to, from) {
    to.token = from.token; to.start = from.start; to.until = from.until;
    to.generation = from.generation; to.current = from.current; to.fence = from.fence;
    to.highest = from.highest; to.server = from.server
}

/* --- what a holder knows: core.keeper.LeaseKeeper ---------------------------------------- */

typedef Lease { byte token; byte start; byte until; byte generation }
Lease lease[HOLDERS];
byte next[HOLDERS];   /* the tick after the last one that it has stamped */

/* A request on its way, and one that is late: its sender has given it up. */
mtype = { nothing, acquire, renew, release };
typedef Request { mtype kind = nothing; byte token; byte start; byte generation; byte next }
Request asked, late;

#define IS_OPEN(p) (lease[p].token != NONE)

inline write(request, p, what) {
    request.kind = what; request.token = lease[p].token; request.start = lease[p].start;
    request.generation = lease[p].generation; request.next = next[p]
}
inline drop(request) {
    request.kind = nothing; request.token = NONE; request.start = 0; request.generation = 0;
    request.next = 0
}
inline close(p) {
    lease[p].token = NONE; lease[p].start = 0; lease[p].until = 0; lease[p].generation = 0
}

/* --- what must hold ---------------------------------------------------------------------- */

bool stamped[TICKS];

/* --- the registry -------------------------------------------------------------------------- */

#define STORED(it) (db.token == it || replica.token == it || late.token == it)
#define KNOWN(it, i) (lease[i].token == it)

/* core.lease.new_token: a token that no process has */
inline new_token(it) {
    it = 1; i = 0;
    do
    :: i == HOLDERS && !STORED(it) -> break
    :: i == HOLDERS && STORED(it) -> it++; i = 0
    :: i < HOLDERS && KNOWN(it, i) -> it++; i = 0
    :: i < HOLDERS && !KNOWN(it, i) -> i++
    od;
    i = 0
}

/* core.book._is_current */
#define IS_CURRENT(request) (request.token != NONE && db.token == request.token && db.start == request.start \
    && db.generation == request.generation \
    && db.current == request.generation)

/* core.lease.is_free; a mark of another generation is void */
#define IS_FREE (db.token == NONE || now >= db.until || db.generation != db.current)

/* Assumed of a takeover: by SKEW ticks at most, its clock is behind, and windows start ahead of the
 * time because a worker id was handed on. Nor does the clock go back besides (STEPS_BACK=0): that
 * both happen is a limit in docs/guarantees.md.
 */
#if TAKEOVERS
#define MAY_LEND (start <= MAX(now, db.fence) || handed_on < SKEW)
#else
#define MAY_LEND true
#endif

/* One transaction. `granted` says whether the lease in the database is that of the caller. */
inline serve(request) {
    granted = false;
    /* core.book._is_lost and _reopened: another server may lack the last writes (L7) */
    if
    :: db.server != server ->
        db.server = server;
        db.current++;
        /* core.lease.loss_fence */
        db.fence = MAX(MAX(db.fence, MAX(db.highest, db.until)), now + SKEW) + WINDOW
    :: else
    fi;
    if
    :: request.kind == acquire ->
        /* core.lease.grant_window (L1); request.next is not_before */
        start = MAX(MAX(now, db.until), MAX(db.fence, request.next));
        if
        :: IS_FREE && start < TICKS && MAY_LEND ->
            new_token(token);
            db.token = token; db.start = start; db.generation = db.current;
            db.until = MIN(start + WINDOW, TICKS);
            db.highest = MAX(db.highest, db.until);
            granted = true;
#if TAKEOVERS
            /* See MAY_LEND. */
            if
            :: start > MAX(now, db.fence) -> handed_on++
            :: else
            fi
#endif
        :: else
        fi
    :: request.kind == renew && IS_CURRENT(request) ->
        /* core.lease.extend_window (L2); the last tick is request.next - 1 */
        until = db.until;
        latest = MAX(now, MIN(request.next, db.until + 1) - 1);
        db.until = MAX(db.until, MIN(latest + WINDOW, TICKS));
        assert(db.until >= until);
        db.highest = MAX(db.highest, db.until);
        granted = true
    :: request.kind == release && IS_CURRENT(request) ->
        /* core.book.take_back and core.lease.final_mark (L3) */
        db.token = NONE;
        db.until = MIN(db.until, MAX(db.start, request.next))
    :: else
    fi;
    start = 0; token = 0; until = 0; latest = 0
}

/* core.keeper._acquire and _take_renewal */
inline answer(p, what) {
    if
    :: granted && what == acquire ->
        assert(db.start >= next[p]);    /* its ids go on rising */
        lease[p].token = db.token; lease[p].start = db.start; lease[p].until = db.until;
        lease[p].generation = db.generation;
        next[p] = db.start
    :: granted && what == renew && IS_OPEN(p) ->
        assert(db.until >= lease[p].until);
        lease[p].until = db.until
    :: else
    fi;
    granted = false
}

#if TAKEOVERS
/* core.snowflake: no further ahead of the time than the start of its window */
#define LAST(p) MIN(lease[p].until - 1, MAX(now, lease[p].start))
#else
#define LAST(p) (lease[p].until - 1)
#endif

/* An answer that takes its time is like one that comes at once to a holder that pauses. */
inline ask(p, what) {
    write(asked, p, what);
    if
    :: true -> serve(asked); answer(p, what)
    :: true -> serve(asked); granted = false        /* the answer is lost */
    :: late.kind == nothing -> write(late, p, what)
    fi;
    drop(asked)
}

active [HOLDERS] proctype Holder() UNLESS_CALM {
    byte p = _pid, tick;
    byte start, token, until, latest, i; bool granted;
    do
    :: atomic { !IS_OPEN(p) -> ask(p, acquire) }
    :: atomic { IS_OPEN(p) -> ask(p, renew) }
    /* core.keeper.release: it has stopped stamping (L3). */
    :: atomic { IS_OPEN(p) -> ask(p, release); close(p) }
    /* core.snowflake: it stamps a tick below the end of its window (L5). */
    :: atomic {
        IS_OPEN(p) && next[p] <= LAST(p) ->
        tick = next[p];
        do
        :: tick < LAST(p) -> tick++
        :: break
        od;
        assert(!stamped[tick]);
        stamped[tick] = true; next[p] = tick + 1; tick = 0
      }
    /* The window is used up, or the process is killed. */
    :: d_step { IS_OPEN(p) && next[p] >= lease[p].until -> close(p) }
    :: d_step { IS_OPEN(p) -> close(p); next[p] = 0 }
    od
}


active proctype World() UNLESS_CALM {
    byte back, start, token, until, latest, i; bool granted;
    do
    /* A late request is served; its answer counts no more (L4). Or it never arrives. */
    :: atomic { late.kind != nothing -> serve(late); granted = false; drop(late) }
    :: d_step { late.kind != nothing -> drop(late) }
    :: now < TICKS -> now++
    :: atomic {
        steps_back && now -> steps_back--;
        do
        :: now -> now--
        :: break
        od
      }
#if TAKEOVERS
    /* The replica gets what it will have: only the last copy before a takeover matters. */
    :: d_step { copies == takeovers && takeovers -> copies--; copy(replica, db) }
    :: atomic {
        copies < takeovers -> takeovers--; server++; copy(db, replica); copy(replica, blank);
        do
        :: now && back + handed_on < SKEW -> now--; back++
        :: break
        od;
        back = 0
      }
#endif
    od
}

#ifdef PROGRESS
/* Progress: whatever has happened, once the time has come to all that was lent and the registry
 * answers, the next call of a newcomer gets a lease.
 */
active proctype Calm() {
    byte start, token, until, latest, i; bool granted;
    atomic {
        MAX(now, MAX(db.until, db.fence)) < TICKS ->
        calm = true; now = MAX(now, MAX(db.until, db.fence));
        asked.kind = acquire; serve(asked);
        assert(granted || MAX(now, db.fence) >= TICKS)
    }
}
#endif
