"""What django_idgen must reach, measured: ``python -m tests.benchmarks [group ...]``.

Not collected by pytest: figures depend on the machine, so they are printed beside
their bars, not asserted. All ratios are between things measured in the same run,
in interleaved rounds, of which the median counts. Rounds are short and many: one that the
system interrupts is an outlier then, not a share of every round.
"""
