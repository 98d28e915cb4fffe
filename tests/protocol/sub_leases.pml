/* A registry that can forget, and the database that lends to it: rule L6.
 *
 * Two servers have the hash of one namespace, with one worker id. Any process may reach either
 * of them at any time, as with a primary that was cut off and goes on. A server may be flushed;
 * and it may be promoted with what the other one had, which goes on writing. No clock is trusted:
 * each call reads any tick at all. A comment names the function that a block stands for.
 */

#ifndef TICKS
#define TICKS 5        /* all ticks that there are: 2**time_bits */
#endif
#ifndef WINDOW
#define WINDOW 1
#endif
#ifndef STRIDE
#define STRIDE 1       /* how far the database raises a ceiling */
#endif
#ifndef LOSSES
#define LOSSES 2       /* flushes and promotions */
#endif
#ifndef HOLDERS
#define HOLDERS 2
#endif
#define SERVERS 2
#ifdef PROGRESS
bool calm;
#define UNLESS_CALM provided (!calm)
#else
#define UNLESS_CALM
#endif
#define NONE 0
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define MIN(a, b) ((a) < (b) -> (a) : (b))

/* core.book.SubLease */
typedef SubLease { byte generation; byte fence; byte ceiling; byte life }

/* --- the database: leases.root.Root and core.book.change_sub_lease ----------------------- */

SubLease root;        /* generation 1 begins with the first use */
#define HAS_TICKS (root.ceiling < TICKS)

/* SubLease.opened */
inline open_root(which) {
    if
    :: root.ceiling > root.fence && root.life == which
    :: else ->
        if
        :: root.ceiling ->
            root.fence = MAX(root.fence, MAX(root.ceiling, now));
            root.generation++
        :: else -> root.generation = 1
        fi;
        root.ceiling = MIN(MAX(root.fence, now) + STRIDE, TICKS);
        root.life = which
    fi
}

/* SubLease.raised_for, serves and lifted */
inline lift_root(seen) {
    if
    :: seen.generation == root.generation && seen.fence == root.fence && seen.life == root.life ->
        root.ceiling = MAX(root.ceiling, MIN(MAX(root.fence, now) + STRIDE, TICKS))
    :: else
    fi
}

/* --- the servers: leases/redis/lua, leases/zookeeper ---------------------------------------- */

typedef Mark { byte token; byte start; byte until; byte generation }
typedef Hash {
    SubLease lent;          /* generation 0: nothing yet */
    Mark mark;
    bool whole              /* of the server's present life: opened() in common.lua */
}
Hash hash[SERVERS];
byte losses = LOSSES;

/* --- processes on the way between the two: RedisLeases._granted ------------------------------- */

mtype = { nothing, opening, lifting, installing, restarting };
typedef Message { mtype kind = nothing; SubLease about }
Message message;      /* of a process that may pause for ever, while others are quick */

typedef Lease { byte token; byte start; byte until; byte generation }
Lease lease[HOLDERS];

/* --- what must hold ------------------------------------------------------------------------------ */

bool lent[TICKS];     /* to a holder that has not given it back */

inline note_lent(from, to) {
    tick = from;
    do
    :: tick < to -> assert(!lent[tick]); lent[tick] = true; tick++
    :: else -> break
    od;
    tick = 0
}
inline note_given_back(from, to) {
    tick = from;
    do
    :: tick < to -> lent[tick] = false; tick++
    :: else -> break
    od;
    tick = 0
}

/* Any tick; the clock of a server or of the database. */
inline read_clock(it) {
    it = 0;
    do
    :: it < TICKS -> it++
    :: break
    od
}

/* The nonce of begin() in common.lua: a life that no one knows. */
#define HAS_LIFE(it) (root.life == it || hash[0].lent.life == it || hash[1].lent.life == it \
    || message.about.life == it)
inline new_life(it) {
    it = 1;
    do
    :: HAS_LIFE(it) -> it++
    :: else -> break
    od
}
#define HAS_TOKEN(it) (hash[0].mark.token == it || hash[1].mark.token == it \
    || lease[0].token == it || lease[HOLDERS - 1].token == it)
inline new_token(it) {
    it = 1;
    do
    :: HAS_TOKEN(it) -> it++
    :: else -> break
    od
}

/* begin() in common.lua */
inline begin(s) {
    hash[s].lent.generation = 0; hash[s].lent.fence = 0; hash[s].lent.ceiling = 0;
    new_life(fresh);
    hash[s].lent.life = fresh; hash[s].whole = true;
    fresh = 0
}

#define SERVES(s) (hash[s].whole && hash[s].lent.generation > 0)
/* is_current() in common.lua: what began below the fence is void */
#define IS_CURRENT(s) (hash[s].mark.token != NONE && hash[s].mark.generation == hash[s].lent.generation \
    && hash[s].mark.start >= hash[s].lent.fence)
#define HOLDS(s, p) (IS_CURRENT(s) && hash[s].mark.token == lease[p].token \
    && hash[s].mark.start == lease[p].start && hash[s].lent.generation == lease[p].generation)

/* acquire.lua */
inline acquire(s, p) {
    read_clock(now);
    start = MAX(MAX(now, hash[s].mark.until), hash[s].lent.fence);
    until = MIN(start + WINDOW, hash[s].lent.ceiling);
    if
    :: (!IS_CURRENT(s) || now >= hash[s].mark.until) && until > start ->
        new_token(fresh);
        hash[s].mark.token = fresh; hash[s].mark.start = start; hash[s].mark.until = until;
        hash[s].mark.generation = hash[s].lent.generation;
        note_lent(start, until);
        if
        :: lease[p].token = fresh; lease[p].start = start; lease[p].until = until;
            lease[p].generation = hash[s].lent.generation
        :: true     /* the answer is lost */
        fi
    :: else
    fi;
    now = 0; start = 0; until = 0; fresh = 0
}

/* renew.lua; the mark's end stands for the last tick, the highest there can be */
inline renew(s, p) {
    read_clock(now);
    until = MAX(hash[s].mark.until, MIN(MAX(now, hash[s].mark.until) + WINDOW, hash[s].lent.ceiling));
    note_lent(hash[s].mark.until, until);
    hash[s].mark.until = until;
    if
    :: lease[p].until = until
    :: true
    fi;
    now = 0; until = 0
}

/* release.lua: the ticks below `until` are used */
inline release(s, p) {
    until = lease[p].start;
    do
    :: until < lease[p].until -> until++
    :: break
    od;
    if
    :: HOLDS(s, p) ->
        until = MIN(hash[s].mark.until, until);
        note_given_back(until, hash[s].mark.until);
        hash[s].mark.token = NONE; hash[s].mark.until = until
    :: else
    fi;
    until = 0;
    forget(p)
}
inline forget(p) {
    lease[p].token = NONE; lease[p].start = 0; lease[p].until = 0; lease[p].generation = 0
}

active [HOLDERS * SERVERS] proctype Holder() UNLESS_CALM {
    byte p = _pid / SERVERS, s = _pid % SERVERS, now, start, until, fresh, tick;
    do
    :: atomic { lease[p].token == NONE && SERVES(s) -> acquire(s, p) }
    :: atomic { lease[p].token != NONE && SERVES(s) && HOLDS(s, p) -> renew(s, p) }
    :: atomic { lease[p].token != NONE && SERVES(s) -> release(s, p) }
    :: d_step { lease[p].token != NONE -> forget(p) }   /* lost, used up or killed */
    od
}

inline keep(what, sub_lease) {
    message.kind = what;
    message.about.generation = sub_lease.generation; message.about.fence = sub_lease.fence;
    message.about.ceiling = sub_lease.ceiling; message.about.life = sub_lease.life
}
inline drop() {
    message.kind = nothing;
    message.about.generation = 0; message.about.fence = 0; message.about.ceiling = 0;
    message.about.life = 0
}

#define IS_OF(sub_lease, s) (hash[s].lent.generation > 0 && sub_lease.fence == hash[s].lent.fence \
    && sub_lease.generation == hash[s].lent.generation)
/* install.lua: fences only rise */
inline install(s, sub_lease) {
    if
    :: hash[s].whole && hash[s].lent.life == sub_lease.life ->
        if
        :: hash[s].lent.generation == 0 || sub_lease.fence > hash[s].lent.fence ->
            hash[s].lent.generation = sub_lease.generation;
            hash[s].lent.fence = sub_lease.fence; hash[s].lent.ceiling = sub_lease.ceiling
        :: IS_OF(sub_lease, s) ->
            hash[s].lent.ceiling = MAX(hash[s].lent.ceiling, sub_lease.ceiling)
        :: else
        fi
    :: else
    fi
}

active [SERVERS] proctype Broker() UNLESS_CALM {
    byte s = _pid % SERVERS, now, fresh;
    do
    /* A script finds no hash, or one of another life: it begins it anew. */
    :: atomic { !hash[s].whole -> begin(s) }
    :: d_step {
        message.kind == nothing && hash[s].whole && hash[s].lent.generation == 0 ->
        keep(opening, hash[s].lent)
      }
    :: d_step { message.kind == nothing && SERVES(s) -> keep(lifting, hash[s].lent) }
    /* The same, quickly. */
    :: atomic {
        HAS_TICKS && hash[s].whole && hash[s].lent.generation == 0 ->
        read_clock(now); open_root(hash[s].lent.life); now = 0; install(s, root)
      }
    /* Root.open */
    :: atomic {
        HAS_TICKS && message.kind == opening ->
        read_clock(now); open_root(message.about.life); now = 0; keep(installing, root)
      }
    /* Root.lift */
    :: atomic {
        message.kind == lifting ->
        read_clock(now); lift_root(message.about);
        if
        :: root.life == message.about.life -> keep(installing, root)
        :: root.life != message.about.life && now >= root.ceiling -> message.kind = restarting
        :: else -> drop()      /* TakenOver */
        fi;
        now = 0
      }
    :: d_step { message.kind == installing -> install(s, message.about); drop() }
    /* restart.lua */
    :: atomic {
        message.kind == restarting ->
        if
        :: hash[s].whole && hash[s].lent.life == message.about.life -> begin(s)
        :: else
        fi;
        drop()
      }
    :: d_step { message.kind != nothing -> drop() }     /* the process is killed */
    od
}

inline copy_hash(to, from) {
    hash[to].lent.generation = hash[from].lent.generation; hash[to].lent.fence = hash[from].lent.fence;
    hash[to].lent.ceiling = hash[from].lent.ceiling; hash[to].lent.life = hash[from].lent.life;
    hash[to].mark.token = hash[from].mark.token; hash[to].mark.start = hash[from].mark.start;
    hash[to].mark.until = hash[from].mark.until;
    hash[to].mark.generation = hash[from].mark.generation
}
inline wipe(s) {
    hash[s].lent.generation = 0; hash[s].lent.fence = 0; hash[s].lent.ceiling = 0;
    hash[s].lent.life = 0; hash[s].mark.token = NONE; hash[s].mark.start = 0;
    hash[s].mark.until = 0; hash[s].mark.generation = 0; hash[s].whole = false
}

active [SERVERS] proctype World() UNLESS_CALM {
    byte s = _pid % SERVERS;
    do
    :: d_step { losses -> losses--; wipe(s) }
    :: d_step { losses -> losses--; copy_hash(s, 1 - s); hash[s].whole = false }
    od
}

#ifdef PROGRESS
/* Progress: whatever has happened, once the time has come to all that was promised and the
 * registry answers, a process has a lease after four calls. It calls from here on, and no other.
 */
#define MAY_ACQUIRE (SERVES(s) && (!IS_CURRENT(s) || now >= hash[s].mark.until) && \
    MAX(now, hash[s].lent.fence) < hash[s].lent.ceiling)
active [SERVERS] proctype Calm() {
    byte s = _pid % SERVERS, now, fresh, calls;
    atomic {
        now = MAX(root.ceiling, MAX(hash[s].lent.ceiling, hash[s].mark.until));
        now < TICKS -> calm = true;
        do
        :: MAY_ACQUIRE -> break
        :: else ->
            assert(calls < 4);
            calls++;
            if
            :: !hash[s].whole -> begin(s)
            :: hash[s].whole && hash[s].lent.generation == 0 ->
                open_root(hash[s].lent.life); install(s, root)
            :: else ->
                lift_root(hash[s].lent);
                if
                :: root.life == hash[s].lent.life -> install(s, root)
                :: else -> assert(now >= root.ceiling); begin(s)
                fi
            fi
        od
    }
}
#endif
