"""Lines to others: calls and their answers over one connection, whoever opened it, and how one is dialled.

`line` is one connection as both sides use it, `dialling` opens one over WebSocket, with what its certificate must
be, and says how long to wait before the next try.

It refuses to know what is said on a line. Above it stand the link to a MAP server and the federation, below it
`wire`.
"""
