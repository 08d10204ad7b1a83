"""One codec for each outside format: each module turns values of the model into plain dictionaries, and back.

plain        our own JSON: every field always there
inbox        agent-inbox: messages, agents, and the lines of inbox.jsonl
mail         `mail/*`: conversations, turns and threads in both dialects
map          MAP: names, addresses, messages, agents, errors
federation   the envelope between systems, and refusals
errors       errors in the form of each dialect
"""
