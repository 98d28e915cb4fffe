"""Moving tables that are in use over to our fields, and back; taking over other servers' tags.

``manage.py idgen_adopt APP.MODEL`` is run again and again: each time it finds out how far
the table is, does or writes the next stage, and says what to do then. Whatever touches
the database stands in a migration, so that all databases of a project get it, or can be
broken off at any moment and run again.

**An integer key** (``AutoField``, ``BigAutoField``, ``SmallAutoField``) keeps its ids. During
a deploy old processes take ids from the database's counter while new ones take ours, so
the two must never meet:

1. *Widen* (32-bit keys only). ``AlterField`` to ``BigAutoField``, in the model, too. Old
   processes would not find ids past 2**31, so all of them get this one first.
2. *Adopt* (:class:`AdoptKey`). Where the database's counter can be held
   below a fence, it is: PostgreSQL's sequence gets a ``MAXVALUE``; on MariaDB, whose
   ``AUTO_INCREMENT`` follows every larger id that is stored, a sequence with a
   ``MAXVALUE`` takes its place. Ours begin above the fence. An old process that comes to
   it gets an error, never an id that is ours. Elsewhere (SQLite, MySQL, Galera) the column
   stops giving values in this very migration: an old process that still runs gets an
   error with its first ``INSERT``, so it is to be stopped before.
3. *Drop the counter* (:class:`DropCounter`), once no old process is left.

**Back** from our field to a ``BigAutoField`` goes the same way round: the counter is given a
grant of the tag's own ids, which nobody else can have, and is let loose when no process is
left that takes ours (:class:`ReturnKey`, :class:`FreeCounter`).

**A UUID key** gets a new key beside it:

1. *Add* (:class:`AddNewKey`): a column for the new key, and one beside each
   foreign key to the table. Nullable, so that nothing is rewritten, and unknown to the
   models, so that old processes go on.
2. *Fill* (:mod:`.filling`), by the command, in batches, each a transaction; as often as it
   takes, since rows go on being inserted.
3. *Switch* (:class:`SwitchKey`), in one go, with the tables locked and the
   last rows filled: the new columns take the places of the old ones. It needs a short stop
   of the site, as no process can work with both kinds of key. The UUID stays, as a unique
   column, and is the way back, by the same three stages.
"""
