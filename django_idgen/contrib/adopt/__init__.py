"""Moves tables that are in use to the fields of this app, and back; takes over other servers.

You run ``manage.py idgen_adopt APP.MODEL`` again and again. Each time it finds the stage that
the table has reached, does or writes the next one, and prints your next steps. All changes of
tables are in migrations, so that each database of a project gets them. Any stage can be
interrupted and run again.

**An integer key** (``AutoField``, ``BigAutoField``, ``SmallAutoField``) keeps its ids. During
a deploy old processes take ids from the database's counter while new ones take them from a
generator, so the two must never meet:

1. *Widen* (32-bit keys only): ``AlterField`` to ``BigAutoField``, in the model as well. Old
   processes would not find ids past 2**31, so all of them get this stage first.
2. *Adopt* (:class:`~.key_operations.AdoptKey`). PostgreSQL's sequence gets a ``MAXVALUE``. On
   MariaDB, whose ``AUTO_INCREMENT`` follows every larger id that is stored, a sequence with a
   ``MAXVALUE`` replaces it. The generator begins above this fence. An old process that reaches
   the fence gets an error, never an id of the generator. Elsewhere (SQLite, MySQL, Galera) the
   column stops giving values in this migration: stop old processes first, as their next
   ``INSERT`` fails.
3. *Drop the counter* (:class:`~.key_operations.DropCounter`), once no old process is left.

**Back** to a ``BigAutoField`` takes the same stages: the counter gets a grant of the tag's own
ids (:class:`~.key_operations.ReturnKey`), and loses its bounds when no process takes ids of the
tag any more (:class:`~.key_operations.FreeCounter`).

**A UUID key** gets a new key beside it:

1. *Add* (:class:`~.swap_operations.AddNewKey`): a column for the new key, and one beside each
   foreign key to the table. They are nullable, so that nothing is rewritten, and unknown to
   the models, so that old processes go on.
2. *Fill* (:class:`~.filling.Filling`): the command fills the columns in batches, each a
   transaction. Run it as often as you like, since processes go on inserting rows.
3. *Switch* (:class:`~.swap_operations.SwitchKey`): with the tables locked, it fills the last
   rows, and the new columns replace the old ones. Stop the site for it, as no process can work
   with both kinds of key. The UUID stays, as a unique column, and is the way back, by the same
   three stages.
"""
