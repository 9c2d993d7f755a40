"""Binary content in messages: where it is, and how it is encoded there.

Rule: nothing here raises and nothing is changed. Only whole values are found, and in a text only those that a
signature, a data URI or a declared type proves to be a file: real code and prose are never taken for one.
"""
