"""The rules, as pure functions that return a verdict or refuse with an error. No I/O, no clock.

limits            every number the rules depend on; how long things are kept
admission         allow lists, expiry, rates; hops and loops
trust             what another system may do
alerts            when an agent is notified of mail, and how often
retry             the next state after a failed attempt; leases and expiry; mail for other systems
routing           presence, the least busy agent, the escalation ladder
"""
