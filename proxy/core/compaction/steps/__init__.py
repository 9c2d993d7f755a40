"""The steps that a request may go through, one file each.

A local step looks at one message and those before it; a compaction step looks at a conversation that is too large and
gives up part of it. Both yield the changes they would make, and change nothing themselves.
"""
