"""A serializer that is defined while the models are still being imported."""

from rest_framework import serializers

from tests.app.models import Line, Order


class EarlySerializer(serializers.ModelSerializer):
    declared = serializers.PrimaryKeyRelatedField(source="order", queryset=Order.objects.all())

    class Meta:
        model = Line
        fields = ("id", "order", "declared")
