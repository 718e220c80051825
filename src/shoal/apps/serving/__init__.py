"""How `shoal watch`, `shoal human` and `shoal judge` serve strangers over HTTP without running out of resources.

quota        which clients stay when there are too many
connections  uvicorn's connections with a quota, and with time limits for slow clients
server       uvicorn's server, which keeps answering while connections pour in
bodies       a request's body, bounded in size and time
"""
