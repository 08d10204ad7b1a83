"""Installing a host's hooks, its MCP server and its rules text, and removing them.

layouts     where each host keeps its hooks, MCP servers and rules
pieces      our part of one file: how it is put in, recognised and taken out
plan        the changes to each file, computed before anything is written, and then carried out
"""
