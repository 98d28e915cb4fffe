"""What grants leases of worker ids: a registry a module. Imports core, settings and db."""
