"""A link to a MAP server: the post room as a guest there, with its agents.

Agents of the server stand in our directory as `system/name`, and mail for them waits in mailboxes of that name
until the server has taken it. Our own agents, those that are exposed, stand in the server's directory under their
names.

`neighbours` knows who is there by which name, `translating` makes messages of letters and letters of messages,
`directory` keeps our directory and theirs in step, `carrying` sends what waits, `showing` keeps who of ours is
there, `scoping` joins scopes, `taking` takes what comes, `stranded` what the server put aside, `visit` is one stay
there, `memory` what is kept of it, `link` begins again after a cut.

It refuses to know how mail is kept and how the protocol's words are spelt: `wire` does. Above it stands the
daemon.
"""
