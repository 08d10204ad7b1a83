"""The server: transports at the edge, one executor in the middle. It holds no rule about mail.

executor            runs jobs on threads, fairly, with bounded queues
broker              subscriptions: which caller wants which changes, and sending them
callers             one caller over a transport: who it is, what it may do, the order of its requests
requests            how a request is scheduled; the verbs about a connection: authenticate, subscribe, links
inbox_actions       the actions of agent-inbox, as verbs
mail                the methods `mail/*` of conversations, as verbs
describe            `rpc.discover` and `openapi.json`, made from the verbs
events              changes as events, and the filters of subscriptions
protocol            JSON-RPC and agent-inbox lines, read and answered
unix_socket         the Unix socket; client: the other side of it
http                authentication, replies, JSON-RPC by POST
http_app            the ASGI app: which path is served by what; health; mounted apps
http_server         listens, and runs the app in uvicorn, with limits around its connections
streams             `/ws`: JSON-RPC in frames; `GET /subscribe`: server-sent events
metrics             `/metrics` for Prometheus
tls                 certificates of other systems
"""
