"""Moving tables that are in use to the fields of this app, and back; taking over other servers.

You run ``manage.py idgen_adopt APP.MODEL`` again and again. Each time it finds out how far
the table is, does or writes the next stage, and says what to do then. All changes to the
database are in migrations, so that each database of a project gets them, or can be broken
off at any moment and run again.

**An integer key** (``AutoField``, ``BigAutoField``, ``SmallAutoField``) keeps its ids. During
a deploy old processes take ids from the database's counter while new ones take them from a
generator, so the two must never meet:

1. *Widen* (32-bit keys only). ``AlterField`` to ``BigAutoField``, in the model, too. Old
   processes would not find ids past 2**31, so all of them get this stage first.
2. *Adopt* (:class:`AdoptKey`). Where the database's counter can be held below a fence, it
   is: PostgreSQL's sequence gets a ``MAXVALUE``; on MariaDB, whose ``AUTO_INCREMENT``
   follows every larger id that is stored, a sequence with a ``MAXVALUE`` takes its place.
   The generator begins above the fence. An old process that comes to the fence gets an
   error, never an id of the generator. Elsewhere (SQLite, MySQL, Galera) the column stops
   giving values in this migration: an old process gets an error with its first ``INSERT``,
   so stop it before.
3. *Drop the counter* (:class:`DropCounter`), once no old process is left.

**Back** to a ``BigAutoField`` goes the same way round: the counter gets a grant of the tag's
own ids, and loses its bounds when no process takes ids of the tag any more
(:class:`ReturnKey`, :class:`FreeCounter`).

**A UUID key** gets a new key beside it:

1. *Add* (:class:`AddNewKey`): a column for the new key, and one beside each
   foreign key to the table. Nullable, so that nothing is rewritten, and unknown to the
   models, so that old processes go on.
2. *Fill* (:mod:`.filling`), by the command, in batches, each a transaction; as often as it
   takes, since processes go on inserting rows.
3. *Switch* (:class:`SwitchKey`), in one go, with the tables locked and the last rows
   filled: the new columns take the places of the old ones. Stop the site for it, as no
   process can work with both kinds of key. The UUID stays, as a unique column, and is the
   way back, by the same three stages.
"""
