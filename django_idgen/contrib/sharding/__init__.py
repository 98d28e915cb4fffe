"""One tag over several databases, each of which gives out its own remainder."""
