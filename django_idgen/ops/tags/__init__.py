"""Tags as people see and change them: what the admin, the API and old servers' URLs share."""
