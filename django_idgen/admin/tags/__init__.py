"""The pages of tags: their list, each one's page, what people do to them, and the history.

Nothing here may make an id come again. ``max_id`` only goes up, by a skip that says first
what it loses, in one statement that does not depend on what the page showed; and no page
deletes a tag, which would start at 1 again.
"""
