"""A small project that the tests run under real servers, in processes of its own."""
