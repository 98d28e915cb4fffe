"""Tags: changes by people, their log, forecasts and usage; fixtures and migrations."""
