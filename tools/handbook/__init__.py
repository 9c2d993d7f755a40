"""The generated part of docs/, and config.example.yaml: settings, API, log, metrics, rooms and their picture.

Rule: the top layer, beside the proxy's own commands; nothing in the proxy imports it.
"""
