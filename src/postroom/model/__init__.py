"""Values and tables of the mail itself: messages, deliveries, agents, tasks. Pure: no I/O, no clock, no store.

names      names, ids and addresses, and the one validator of each
values     the base of printed values; checks of text, times, JSON, counts and lists
codec      values as JSON bytes, and back
message    the message and its parts; handoffs and templates
delivery   one message at one mailbox, and the table of its transitions
agent      agent cards, presence, guards, scopes
task       tasks, their transition table, and escalations
thread     threads, conversations and turns, computed from messages
query      queries to a store, and answers that count
search     the search language; text as words
record     small named records with a revision; changes and cursors
alert      alerts to agents about mail, and the times at which mail was shown
peer       other systems with which a room exchanges mail
webhook    webhooks, their targets and which of them may be called, and signatures
report     statistics, traces and health findings
"""
