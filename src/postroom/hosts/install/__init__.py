"""Installing a host's hooks, its MCP server and its rules text, and removing them.

layouts     where each host keeps its hooks, MCP servers and rules
pieces      our part of one file: how it is put in, recognised and taken out
plan        the changes to each file, computed before anything is written
write       carrying out a plan
files       the files of hosts as they are found, and which of them are left alone
json_edit   edits of JSON files that keep everything else as it is written
"""
