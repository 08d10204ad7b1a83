"""One codec for each outside format: each module turns values of the model into plain dictionaries, and back.

plain        our own JSON: every field always there; its types, for JSON Schema
inbox        agent-inbox: messages, requests to send one, agents, and the lines of inbox.jsonl
mail         `mail/*`: conversations, turns and threads in both dialects
map          MAP: names, addresses, messages of sessions and of the link, agents, errors
mcp          letters, agents and tasks as models get them over MCP
nanobot      fields of letters in the metadata of nanobot's bus
alerts       alerts for a watch's program and for the receiver of a webhook
events       events in both dialects
federation   the envelope between systems, as post rooms and as agent-inbox have it, and refusals
errors       errors in the form of each dialect
"""
