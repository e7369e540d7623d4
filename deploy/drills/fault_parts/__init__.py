"""The parts of `deploy/drills/faults`.

| file | what it does |
|---|---|
| `processes.py` | one process each: Lockgate's roles, redis-server, Sentinel, PostgreSQL; started, killed and started again |
| `fleet.py` | all of them together, on free ports and in one folder |
| `proxy.py` | a TCP proxy that delays replies, drops them and swallows them |
| `http_client.py` | one kept connection, HTTP/1.1 |
| `buyers.py` | buyers who walk from entering to a paid order, and write down every answer that binds |
| `account.py` | the settlement: what buyers were told against orders, stock and the gateway's ledger |
| `scenes.py` | the drills |
| `wall_clock.c` | gives one process a wall clock of its own |
"""
