"""The server: transports at the edge, one executor in the middle. It holds no rule about mail.

executor            runs jobs on threads, fairly, with bounded queues
broker              subscriptions: which caller wants which changes, and sending them
callers             one caller over a transport: who it is, and what it may do
table               what a method is: name, parameters, function
verbs               the methods of Postroom's own protocol
inbox_actions       the actions of agent-inbox
mail                the methods `mail/*`: conversations
events              changes as events, and the filters of subscriptions
protocol            JSON-RPC and agent-inbox lines, read and answered
unix_socket         the Unix socket; client: the other side of it
http                authentication, replies, JSON-RPC by POST
http_app            the ASGI app: which path is served by what; health; mounted apps
http_server         listens, and runs the app in uvicorn
uvicorn_protocol    uvicorn's connections with limits
websocket           `/ws`: JSON-RPC in frames
sse                 `GET /subscribe`: server-sent events
metrics             `/metrics` for Prometheus; counters: what is counted
tls                 certificates of other systems
"""
