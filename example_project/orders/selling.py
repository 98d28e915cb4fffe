"""What the shop does: a customer orders some articles, and gets a parcel."""

from __future__ import annotations

import random

from django.db import transaction

from .models import Customer, Order, OrderLine, Parcel

NAMES = [
    "Ada",
    "Alan",
    "Barbara",
    "Donald",
    "Edsger",
    "Grace",
    "Hedy",
    "Joan",
    "Katherine",
    "Linus",
    "Margaret",
    "Niklaus",
]
ARTICLES = {"tea": 250, "coffee": 500, "cocoa": 400, "mug": 350, "kettle": 900, "honey": 600}
"""Grams of each."""


@transaction.atomic
def sell(customer: Customer | None = None) -> Order:
    """Save an order of a new customer, or of ``customer``, with its lines and its parcel."""
    if customer is None:
        customer = Customer.objects.create(name=random.choice(NAMES))
    order = Order.objects.create(customer=customer)
    chosen = random.sample(list(ARTICLES), random.randint(1, 3))
    lines = [
        OrderLine(order=order, article=article, quantity=random.randint(1, 4)) for article in chosen
    ]
    OrderLine.objects.bulk_create(lines)
    grams = sum(ARTICLES[line.article] * line.quantity for line in lines)
    Parcel.objects.create(order=order, grams=grams)
    return order
