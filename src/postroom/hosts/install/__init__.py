"""Installing a host's hooks, its MCP server and its rules text, and removing them.

layouts     where each host keeps its hooks, MCP servers and rules
plan        the changes to each file, computed before anything is written
write       carrying out a plan, all or nothing
files       the files of hosts as they are found, and the receipts of what was installed
json_edit   edits of JSON files that keep everything else as it is written
text_edit   edits of text and TOML files
"""
