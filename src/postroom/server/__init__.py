"""The server: transports at the rim, one executor in the middle. It holds no rule about mail.

executor            runs jobs on threads, fairly, with bounded queues
broker              subscriptions: who wants which changes, and sending them
callers             one caller over a transport: who it is, and what it may do
table               what a method is: name, parameters, function
verbs               our own methods
inbox_actions       the actions of agent-inbox
mail                the methods `mail/*`
events              changes as events, and the filters of subscribers
protocol            JSON-RPC and agent-inbox lines, read and answered
unix_socket         the Unix socket; client: a program's side of it
http                authentication, replies, JSON-RPC by POST
http_app            which path is answered by whom; health; mounted apps
http_server         listens and ends, with uvicorn
uvicorn_protocol    uvicorn connections with limits
websocket           `/ws`: JSON-RPC in frames
sse                 `GET /subscribe`: server-sent events
metrics             `/metrics` for Prometheus; counters: what is counted
tls                 certificates of other systems
"""
