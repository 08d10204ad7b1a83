"""Installing a host's hooks, its MCP server and its rules text, and removing them.

layouts     where each host keeps its hooks, MCP servers and rules
pieces      our part of one file: how it is put in, recognised and taken out
plan        the changes to each file, computed before anything is written
files       the files of hosts: which are left alone, and how they are read and written
json_edit   edits of JSON files that keep everything else as it is written
"""
