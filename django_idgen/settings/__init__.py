"""``settings.IDGEN``, read in one place and turned into frozen values; imports core alone."""
