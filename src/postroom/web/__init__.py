"""HTTP and WebSocket: JSON-RPC by POST and in frames, events as a stream, health and metrics; `/mcp` is mounted.

It refuses to know what any method does. Above it stands the daemon, below it `desk`, `hub` and `wire`. Nobody is
let in without a token, on this machine neither. Needs the extra `serve`.

    server    listens, and ends; uvicorn without its signals, its logs and its ticking
    protocol  connections that are too many, or too slow, are ended
    gate      Host, Origin, token: before anything else, on every request and upgrade
    house     which path is answered by whom, and who stays
    calls     JSON-RPC by POST
    stream    `GET /subscribe`: server-sent events
    frames    `/ws`: JSON-RPC in text frames, notices between them
    map_frames  `/map`: MAP in frames
    outbox    what waits to be written to one caller, bounded
    health    `/healthz`: a real write and a real read
    metrics   `/metrics`: Prometheus text
    mounted   an app of another house below a path, loaded when it is first asked for
    replies   answers as ASGI wants them
"""
