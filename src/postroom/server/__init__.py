"""The server: transports at the edge, one executor in the middle. It holds no rule about mail.

executor            runs jobs on threads, fairly, with bounded queues
broker              subscriptions: which caller wants which changes, and sending them
callers             one caller over a transport: who it is, and what it may do
requests            how the server schedules a request: quick, long, heavy, waiting
session             the verbs about a connection itself: authenticate, subscribe, links
inbox_actions       the actions of agent-inbox, as verbs
mail                the methods `mail/*` of conversations, as verbs
describe            `rpc.discover` and `openapi.json`, made from the verbs
events              changes as events, and the filters of subscriptions
protocol            JSON-RPC and agent-inbox lines, read and answered
unix_socket         the Unix socket; client: the other side of it
http                authentication, replies, JSON-RPC by POST
http_app            the ASGI app: which path is served by what; health; mounted apps
http_server         listens, and runs the app in uvicorn
http_connection     uvicorn's connections inside limits
replies             the replies that one connection is owed
websocket           `/ws`: JSON-RPC in frames
sse                 `GET /subscribe`: server-sent events
metrics             `/metrics` for Prometheus; counters: what is counted
tls                 certificates of other systems
"""
