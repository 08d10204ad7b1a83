"""Protocols without sockets: what can be asked over a wire, in which words, and what is answered.

It takes plain values and a room, and gives plain values back. It refuses to know sockets, event loops and threads:
those are the business of the rims above (`ipc`, `web`, `mcp`). Below it stands the front door, `room`.

| file | holds |
|---|---|
| `table.py` | what a method is; how what was said is checked against its row |
| `saying.py` | parameters that several methods share |
| `verbs.py`, `work_verbs.py`, `ring_verbs.py`, `room_verbs.py` | our own verbs |
| `methods.py` | all methods by name |
| `rpc.py`, `lines.py` | JSON-RPC 2.0, and lines of JSON, read and answered |
| `problems.py` | what went wrong, in the words of each dialect |
| `plain.py` | values of the house as plain JSON |
| `inbox_records.py` | letters and agents as the inbox design writes them down |
| `mail_table.py` | the methods `mail/*`; `mail.py` does them, `mail_words.py` understands what is said to them |
| `mail_records.py` | conversations, turns and threads, in both dialects of `mail/*` at once |
| `mail_problems.py` | what went wrong with a conversation, in the numbers both dialects know |
| `map_table.py` | MAP's methods; `map_agents.py`, `map_scopes.py` and `map_send.py` do them |
| `map_session.py` | one MAP connection: its states, and how what is said on it is read and answered |
| `map_names.py` | the names of its methods, in both spellings |
| `map_addresses.py`, `map_routing.py` | every form of an address; who is meant by it |
| `map_messages.py`, `map_records.py` | letters, agents and scopes as MAP writes them down |
| `map_problems.py` | what went wrong, in the numbers of MAP's SDK |
| `events.py` | what happened, for those who subscribe; `event_filter.py`: to what |
"""
