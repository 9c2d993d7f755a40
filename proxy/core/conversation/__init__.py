"""The messages of a request as views, and the edits that change them."""
