/* Segments of one tag: a database that may fail over, and a pool in Redis that may forget.
 *
 * Section by section: the fetch (sources/server.py), the skip after a failover, the pool
 * (sources/pool), and what processes give back. A step is one id, or two.
 */

#ifndef IDS
#define IDS 8
#endif
#ifndef HOLDERS
#define HOLDERS 2
#endif
#ifndef TAKEOVERS
#define TAKEOVERS 1    /* database servers that take over, each without the last fetches */
#endif
#ifndef MOST_LOST
#define MOST_LOST 1    /* fetches that one of them lacks, at most: failover_skip */
#endif
#ifndef LOSSES
#define LOSSES 1       /* times that Redis comes back with what the pool had before */
#endif
#define STEP 1
#define MAX(a, b) ((a) > (b) -> (a) : (b))

/* --- the database ----------------------------------------------------------------------- */

byte max_id;           /* of the tag's row: the next id */
byte recorded;         /* the server that the row records */
byte server;           /* the one that answers */
byte takeovers = TAKEOVERS;
byte lost;             /* fetches since the copy that the next server has */
byte copied; byte copied_server; bool is_copied;

/* --- the pool ----------------------------------------------------------------------------- */

byte pooled[IDS];      /* the life of Redis that an id was put in under, plus 1; 0: not there */
byte before[IDS];      /* what Redis had before, and may come back with */
byte life;
byte losses = LOSSES;

/* --- the processes --------------------------------------------------------------------------- */

byte floor[HOLDERS];   /* the end of the highest segment that it was granted */
byte has[HOLDERS];     /* an id that it has not given out, plus 1; 0: none */
byte pushing;          /* an id that a beat fetched and has yet to push, plus 1 */

bool given[IDS];       /* given out, or on its way to a caller */

/* sources.server.ServerSource._take, and RowOpening._follow_server and _has_lost */
inline fetch(lowest) {
    if
    :: recorded != server ->
        recorded = server; max_id = max_id + MOST_LOST * STEP
    :: else
    fi;
    if
    :: max_id < lowest -> max_id = lowest + MOST_LOST * STEP
    :: else
    fi;
    start = max_id;
    max_id = max_id + STEP;
    if
    :: is_copied -> lost++
    :: else
    fi
}
#define CAN_FETCH (max_id + 2 * MOST_LOST * STEP + STEP < IDS && (!is_copied || lost < MOST_LOST))

inline take(first) {
    assert(first >= floor[p]);      /* the ids of a process rise */
    floor[p] = first + STEP; has[p] = first + 1
}

active [HOLDERS] proctype Process() {
    byte p = _pid, start, id;
    do
    :: atomic {
        !has[p] && CAN_FETCH ->
        fetch(floor[p]);
        if
        :: take(start)
        :: true                             /* the answer is lost (L4) */
        fi;
        start = 0
      }
    /* sources/pool: an id at or above the floor; what an earlier life put in is thrown away */
    :: atomic {
        !has[p] ->
        do
        :: id < IDS - 1 -> id++
        :: break
        od;
        if
        :: pooled[id] == life + 1 && id >= floor[p] ->
            pooled[id] = 0;
            if
            :: take(id)
            :: true
            fi
        :: pooled[id] && pooled[id] != life + 1 -> pooled[id] = 0
        :: else
        fi;
        id = 0
      }
    :: d_step { has[p] -> assert(!given[has[p] - 1]); given[has[p] - 1] = true; has[p] = 0 }
    /* give_back: what was not given out, and what the process lets go of first (L3) */
    :: atomic {
        has[p] -> id = has[p] - 1; has[p] = 0;
        if
        :: pooled[id] = life + 1
        :: true
        fi;
        id = 0
      }
    :: d_step { has[p] -> has[p] = 0 }      /* killed */
    od
}

/* preload_segments, in Celery's beat */
active proctype Beat() {
    byte start;
    do
    :: atomic { !pushing && CAN_FETCH -> fetch(0); pushing = start + 1; start = 0 }
    :: atomic {
        pushing ->
        if
        :: pooled[pushing - 1] = life + 1
        :: true
        fi;
        pushing = 0     /* also if the answer was lost: a push is never sent twice (L4) */
      }
    od
}

active proctype World() {
    byte i;
    do
    /* The next server knows of the takeover before it, and of all but MOST_LOST fetches. */
    :: d_step {
        takeovers && !is_copied && recorded == server -> is_copied = true; copied = max_id; copied_server = recorded
      }
    :: d_step {
        is_copied -> takeovers--; is_copied = false; lost = 0; server++;
        max_id = copied; recorded = copied_server; copied = 0; copied_server = 0
      }
    /* Redis is copied, and later a replica is promoted: another life, with what was there. */
    :: d_step {
        losses == LOSSES && LOSSES -> losses--;
        do
        :: i < IDS -> before[i] = pooled[i]; i++
        :: else -> break
        od;
        i = 0
      }
    :: d_step {
        losses < LOSSES && life == 0 -> life++;
        do
        :: i < IDS -> pooled[i] = before[i]; before[i] = 0; i++
        :: else -> break
        od;
        i = 0
      }
    od
}
