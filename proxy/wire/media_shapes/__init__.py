"""Binary content in messages: where it stands, and how it is written there.

Rule: nothing here raises and nothing is changed. Only whole values are found, and in a text only what a signature, a
data URI or a declared type proves to be a file: real code and prose are never taken for one.
"""
