"""The steps that a request may go through, one file each.

A local step looks at one message and what stands before it; a compaction step looks at a conversation that is too large
and gives up something of it. Both yield what they would change, and change nothing themselves.
"""
