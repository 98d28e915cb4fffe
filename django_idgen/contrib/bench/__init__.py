"""The benchmark: what ids cost, against other ways to get them, and proof that none repeats.

``manage.py idgen_bench`` is its command line.

* :mod:`.targets`: the generators, tags and peers that can be measured;
* :mod:`.measure`: a plan carried out in rounds, in this process or in several at once;
* :mod:`.proof`: every id of every thread and process compared with every other;
* :mod:`.inserts`: rows with each kind of key;
* :mod:`.scratch`: tags that are made for one run;
* :mod:`.report`: medians with their spread, as a table, as JSON and as a picture.
"""
