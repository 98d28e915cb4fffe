"""The benchmark: what ids cost, against other ways to get them, and proof that none repeats.

Standard library alone but for one peer; ``manage.py idgen_bench`` is its Django side.

* :mod:`.measure`: what is measured (generators, and peers of other packages), and timing;
* :mod:`.auto_increment`: the default database as a peer;
* :mod:`.proof`: every id of every thread and process compared with every other;
* :mod:`.run`: a plan carried out in rounds, in this process or in several at once;
* :mod:`.report`: the figures as a table and as JSON.
"""
