"""What every lease registry and every segment source must do, as tests for pytest.

A package with a registry or a source of its own runs them against it. They need pytest and
hypothesis. Subclass a suite in a test module, name it ``Test...``, and give it the store:

.. code-block:: python

    class MyLender(Lender):
        def make(self, namespace):
            return MyLeases(namespace, now_us=self.time.read)

        def forget(self):
            ...  # delete the marks of all worker ids


    class TestMyLeases(LeaseContract):
        lends = MyLender
"""

from __future__ import annotations

from .leases import LeaseContract
from .lenders import EPOCH_US, NAMESPACE, WINDOW, WORKERS, Claims, DrivenTime, Lender
from .sources import FloorContract, Shop, SourceContract, check_disjoint

__all__ = [
    "EPOCH_US",
    "NAMESPACE",
    "WINDOW",
    "WORKERS",
    "Claims",
    "DrivenTime",
    "FloorContract",
    "LeaseContract",
    "Lender",
    "Shop",
    "SourceContract",
    "check_disjoint",
]
